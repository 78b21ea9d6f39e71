"""The supervisor's pages: what it sees, remembers and did, to read and never to change."""
