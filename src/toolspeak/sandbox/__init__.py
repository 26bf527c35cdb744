"""The boundary that the operating system draws around the processes of tools."""
