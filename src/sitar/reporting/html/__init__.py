"""The report is one HTML file that opens without a network."""
