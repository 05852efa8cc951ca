"""Changes as data, from the change log: the parts that plan, read and shape them."""
