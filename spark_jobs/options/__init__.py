"""What a configuration may ask for, each as a value of its own: nothing here reads or writes anything."""
