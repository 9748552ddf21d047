"""Requirements of a board, checked once per connection and reported by name."""

from pockengine.errors import FarmError

TOOLS = ("cat", "chmod", "df", "ln", "mkdir", "mv", "rm", "sha256sum", "timeout", "wc")
OLD_TIMEOUT = ("timeout", "-s", "KILL", "-t")
"""That of BusyBox before 1.30."""
TIMEOUT = ("timeout", "-s", "KILL")

# "$1" is the work folder. It is created, or checked to be private: no other user may write
# there, or have created it. A program is run there, as a file system may refuse that.
PRIVATE = rf"""
for tool in {" ".join(tool for tool in TOOLS if tool != "timeout")}; do
  command -v "$tool" > /dev/null 2>&1 || echo "lacks $tool"
done
[ -d "$1" ] || (umask 077 && mkdir -p -- "$1") || exit 1
if [ -L "$1" ] || ! [ -O "$1" ]; then
  echo "$1 is a link, or belongs to another user" >&2; exit 1
fi
case $(ls -ld -- "$1") in
  d????-??-*) mkdir -p -- "$1/cas" || exit 1 ;;
  *) echo "$1 can be written by other users: chmod go-w it" >&2; exit 1 ;;
esac
probe=$1/.probe.$$ shell=/bin/sh
[ -x $shell ] || shell=$(command -v sh)
if printf '#!%s\nexit 0\n' "$shell" > "$probe" && chmod 700 "$probe"; then
  "$probe" 2> /dev/null || echo "noexec $1"
fi
rm -f "$probe"
exit 0
"""
SCRIPT = f"""
if timeout -s KILL 9 true 2> /dev/null; then :
elif timeout -s KILL -t 9 true 2> /dev/null; then echo "old timeout"
else echo "lacks timeout"; fi
{PRIVATE}"""
"""The check with `timeout`, which exists in two variants."""


def read_ready(text: str, board: str, workdir: str) -> tuple[str, ...]:
    """Return the form of `timeout` there; FarmError, with its fix, for missing programs."""
    lines = text.splitlines()
    lacking = sorted({line.removeprefix("lacks ") for line in lines if line.startswith("lacks ")})
    if lacking:
        raise FarmError(
            f"{board}: it has no {', '.join(lacking)} in the PATH of `sh`: install coreutils, or "
            "a BusyBox with these applets"
        )
    if any(line.startswith("noexec ") for line in lines):
        raise FarmError(
            f"{board}: programs cannot be run in {workdir}: its file system is mounted noexec; "
            "give the board another workdir (`pockengine add --workdir`, or "
            "workdir in its entry)"
        )
    return OLD_TIMEOUT if "old timeout" in lines else TIMEOUT
