"""Views of the results of applications that `make setup APPS=yes` builds: MPI programs and their steps."""
