"""What a run is about to change, written down before it changes anything; whoever finds it puts it back."""
