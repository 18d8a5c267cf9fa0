#!/bin/sh
# Makes a user:  account.sh NAME UID HOME [FOLDER]
#
# It has a group of the same name and number, HOME and FOLDER are its own, and it may add packages to the environment:
# the folders in which they begin are its own too, what is in them is not.  Who has the name or the number gives way,
# but for the system's own users.
set -eu
name=$1 uid=$2
shift 2
taken=$(sed -n "s/^$name:[^:]*:\([0-9]*\):.*/\1/p" /etc/passwd)
if [ "${taken:-$uid}" -lt 1000 ]; then
    echo "the base has a user $name of its own, with the uid $taken: give user another name" >&2
    exit 1
fi
for file in passwd group; do
    kept=$(grep -v -e "^$name:" -e "^[^:]*:[^:]*:$uid:" "/etc/$file")
    printf '%s\n' "$kept" >"/etc/$file"
done
echo "$name:x:$uid:$uid::$1:/bin/sh" >>/etc/passwd
echo "$name:x:$uid:" >>/etc/group
mkdir -p "$@"
chown "$uid:$uid" "$@"
if [ -d /opt/venv ]; then
    find /opt/venv -path /opt/venv/lib -prune -o -type d -exec chown "$uid:$uid" {} +
    chown "$uid:$uid" /opt/venv/lib/python3*/site-packages
fi
