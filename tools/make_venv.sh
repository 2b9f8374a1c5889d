#!/bin/sh
# make_venv.sh PYTHON FOLDER: makes a virtual environment, also where a distribution ships Python without ensurepip
# (Debian without python3-venv) but with pip: then it is made without pip, and the system's pip installs one into it.
set -u
python=$1
folder=$2

rm -rf "$folder"
if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    "$python" -m venv "$folder" && exit 0
elif "$python" -m pip --version >/dev/null 2>&1 && "$python" -m venv --without-pip "$folder" 2>/dev/null; then
    "$python" -m pip --disable-pip-version-check --quiet --python "$folder/bin/python" install pip && exit 0
fi
rm -rf "$folder"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
echo "pciesim: error: $python cannot make a virtual environment; install its venv module, for example: sudo apt install python$version-venv" >&2
exit 2
