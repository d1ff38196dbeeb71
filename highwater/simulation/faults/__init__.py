"""What is broken in a simulated run: by chance, or in several acts."""
