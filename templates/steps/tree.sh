#!/bin/sh
# Lays files out under /out:  tree.sh FOLDER TARGET OWNER
#
# TARGET and what is in FOLDER belong to the uid OWNER; the folders above it stay root's.
set -eu
if [ ! -d "$1" ]; then
    echo "the project's files are not in this build: give them by --build-context project=DIR" >&2
    exit 1
fi
mkdir -p "/out$2"
cp -R -P --preserve=mode,links "$1/." "/out$2/"
chown -R -h "$3:$3" "/out$2"
