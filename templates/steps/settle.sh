#!/bin/sh
# Runs a command and gives what it changed a time that is the same in every build:  settle.sh EPOCH COMMAND...
#
# EPOCH, in seconds since 1970, is the latest time that a file of this layer may bear.  Only what the command changed is
# touched, or a file of the layers below would be copied into this one; and the folders in which the build itself made
# and removed what it mounts.
set -eu
epoch=$1
shift
work=$(mktemp -d)
: >"$work/mark"
while # the kernel's clock for files ticks every 4 to 10 ms, and later on a machine that others use too
    touch "$work/next"
    [ -z "$(find "$work/next" -cnewer "$work/mark")" ]
do
    sleep 0.01
done
"$@"
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /steps -o -path /installer -o -path /vendor \
    -o -path /list -o -path /unpacked -o -path "$work" \) -prune -o \
    \( -cnewer "$work/mark" -o -type d \) -newermt "@$epoch" -exec touch -h -d "@$epoch" {} +
rm -rf "$work"
touch -d "@$epoch" /tmp
