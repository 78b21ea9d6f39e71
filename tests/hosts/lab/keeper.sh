# Keeps one host running: its disk and nspawn in a mount namespace that ends with this process.
# Arguments: image, folder of the host, its cgroups, then nspawn's command line.
image=$1 dir=$2 groups=$3
shift 3
mount -t overlay testhosts -o "lowerdir=$image,upperdir=$dir/upper,workdir=$dir/work" "$dir/merged" || exit 1
mount -t tmpfs tmpfs /run/systemd/nspawn || exit 1 # nspawn's locks: ours alone
while :; do
  for g in $groups; do mkdir -p "$g/run"; done
  (
    for g in $groups; do echo 0 >"$g/run/cgroup.procs" || exit 1; done
    exec "$@"
  )
  rc=$?
  for g in $groups; do
    [ ! -e "$g/run/cgroup.kill" ] || echo 1 >"$g/run/cgroup.kill"
  done
  for g in $groups; do
    while [ -d "$g/run" ] && ! find "$g/run" -depth -type d -exec rmdir {} +; do sleep 0.05; done 2>/dev/null
  done
  echo "keeper: nspawn exit $rc"
  # A reboot from inside ends nspawn --keep-unit with 133; anything else is the end of the host.
  [ $rc = 133 ] || exit $rc
done
