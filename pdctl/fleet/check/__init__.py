"""What is wrong with the values that a fleet would be started with: one kind of problem a file, all pure."""
