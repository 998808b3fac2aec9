"""The interfaces between packages: small protocols and the plain values that they exchange."""
