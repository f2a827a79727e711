"""Tables, numbers and figures in the pages, made from the committed results."""
