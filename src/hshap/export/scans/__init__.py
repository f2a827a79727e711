"""Label maps and maps of floats as files of hospitals and labs, at the place of their scan."""
