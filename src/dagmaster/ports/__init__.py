"""What the rooms above agree on: small protocols and the values that cross them."""
