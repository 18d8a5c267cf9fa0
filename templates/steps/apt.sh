#!/bin/sh
# Installs Debian packages:  apt.sh [--unpack] DATE COMPONENTS NAME[=VERSION]...
#
# With --unpack their files are laid out and nothing is set up: for a stage that needs programs and is thrown away.
# DATE is the archive's, in seconds since 1970.  COMPONENTS are what the archive's own sources must offer beyond main
# ("-" for nothing).  With versions given, what was installed is compared with them, package by package, and nothing is
# done where the base holds them all.  /vendor/debs, if it is there, is the only source (an offline build); APT_MIRROR,
# if set, takes the place of the sources' addresses, for an archive that keeps old versions: "{date}" in it becomes
# DATE, "{archive}" the archive's name.
set -eu
unpack=
[ "$1" != --unpack ] || { unpack=--download-only && shift; }
date=$1 extra=${2#-}
shift 2
work=$(mktemp -d)
: >"$work/mark"
dpkg-query -W -f '${Package}=${Version} ${db:Status-Status}\n' | sed -n 's/ installed$//p' | sort >"$work/before"
case " $*" in
*=*)
    printf '%s\n' "$@" | sort >"$work/wanted"
    if [ -z "$(comm -13 "$work/before" "$work/wanted")" ]; then
        rm -rf "$work"
        exit
    fi
    ;;
esac

sources() {
    apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | sort -u |
        while read -r uri suite; do
            if [ -n "${APT_MIRROR:-}" ]; then
                # debian, debian-security: the last part of the address says which archive it is
                archive=${uri%/}
                stamp=$(date -u -d "@$date" +%Y%m%dT%H%M%SZ)
                uri=$(printf %s "$APT_MIRROR" | sed "s/{date}/$stamp/; s/{archive}/${archive##*/}/")
            fi
            echo "deb $options $uri $suite main $extra"
        done
}

options=
config="-o Dpkg::Options::=--force-unsafe-io -o APT::Install-Recommends=false -o APT::Sandbox::User=root -o Acquire::Retries=3"
config="$config -o APT::Cmd::Pattern-Only=true" # a name that does not exist is no regular expression
if [ -d /vendor/debs ]; then
    # copy:, not file:, which would leave the packages where they are
    echo 'deb [trusted=yes] copy:/vendor/debs ./' >"$work/sources.list"
elif [ -n "$extra" ] || [ -n "${APT_MIRROR:-}" ]; then
    [ -z "${APT_MIRROR:-}" ] || options='[check-valid-until=no]'
    # shellcheck disable=SC2086
    apt-get $config update -qq # apt names its sources only when it has read them
    sources >"$work/sources.list"
fi
if [ -f "$work/sources.list" ]; then
    config="$config -o Dir::Etc::SourceList=$work/sources.list -o Dir::Etc::SourceParts=/dev/null"
fi

export DEBIAN_FRONTEND=noninteractive LC_ALL=C
# Documents, translations and archives for static linking are never unpacked; licences are.
cat >/etc/dpkg/dpkg.cfg.d/envkit <<'END'
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/lintian/*
path-exclude=/usr/lib/*/libc.a
path-exclude=/usr/lib/*/libm-*.a
path-exclude=/usr/lib/*/libmvec.a
path-exclude=/usr/lib/gcc/*/*/lib*san.a
path-exclude=/usr/lib/gcc/*/*/lto1
path-exclude=/usr/lib/python3*/config-*/libpython*.a
path-exclude=/usr/lib/*/libpython*.a
END
# shellcheck disable=SC2086
apt-get $config update -qq
# shellcheck disable=SC2086
if ! apt-get $config install -y -qq $unpack "$@" >"$work/log" 2>&1; then
    cat "$work/log" >&2
    case " $*" in
    *=*) echo "envkit: the archive may hold these versions no more; lock anew (envkit lock --upgrade), or build from what" \
        "envkit vendor saved, or with --apt-mirror" >&2 ;;
    esac
    exit 100
fi
if [ -n "$unpack" ]; then
    # dpkg-deb --extract would put a folder in the place of the link that /lib is.
    printf '%s\n' /var/cache/apt/archives/*.deb |
        xargs -P 4 -I DEB sh -c 'dpkg-deb --fsys-tarfile "$1" | tar -x -C / --keep-directory-symlink' sh DEB
    ldconfig
    rm -rf "$work"
    exit
fi

dpkg-query -W -f '${Package}=${Version} ${db:Status-Status}\n' | sed -n 's/ installed$//p' | sort >"$work/after"
case " $*" in
*=*)
    comm -13 "$work/before" "$work/after" >"$work/new"
    # What the base had at that very version already is no news, and no fault either.
    if [ -n "$(comm -13 "$work/after" "$work/wanted")$(comm -23 "$work/new" "$work/wanted")" ]; then
        echo "envkit: what was installed is not what the lock holds (< locked, > installed):" >&2
        diff "$work/wanted" "$work/new" >&2 || :
        exit 101
    fi
    ;;
esac

# Only what this step made is taken out: the mark of a file that the base had and the layer lacks would bear today's date.
find /var/lib/apt/lists /var/cache/apt -type f ! -name lock -cnewer "$work/mark" -exec rm {} +
find /var/log /var/cache/ldconfig -type f -cnewer "$work/mark" -size +0 -exec truncate -s 0 {} +
rm -rf "$work"
