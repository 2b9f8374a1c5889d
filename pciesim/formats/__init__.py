"""Every file format: text at the door, domain values inside."""
