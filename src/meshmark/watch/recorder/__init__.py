"""Records a command and the machine around it, and summarises the recording."""
