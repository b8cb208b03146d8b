"""Topics that others write in forms of their own."""
