"""Libraries, each as it wants to be spoken to."""
