"""What will be done, as a value: the plan that is printed is the object that is applied."""
