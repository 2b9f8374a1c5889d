"""One experiment a file; each has ``run(worker)``, which every rank calls, and writes rows as it goes."""
