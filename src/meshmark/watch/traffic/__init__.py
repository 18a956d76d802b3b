"""Who used whose memory: traffic between nodes, and the use of components, of a recording."""
