"""What files and faults can do: damaged files (`fuzz`) and killed runs (`crash`)."""
