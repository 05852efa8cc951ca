"""What the product is compared with: the same as it does with columns, told message by message."""
