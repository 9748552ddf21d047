"""SSH against a server that misbehaves; the real board's tests are in test_emulated.py."""

import os
import shutil
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest

from pockengine.errors import BoardRefused, BoardUnreachable, FarmError, JobFailed, LogError
from pockengine.farm.transports import ssh
from pockengine.farm.transports.digest import sha256_of
from pockengine.farm.transports.ssh import connect_ssh
from pockengine.farm.transports.ssh_ready import TOOLS
from pockengine.tests.farm.helpers import HOSTILE
from pockengine.tests.farm.ssh_server import Faults, new_key, serving


def blob(folder: Path, size: int) -> Path:
    path = folder / "blob"
    path.write_bytes(bytes(i * 7 % 251 for i in range(size)))
    return path


def test_files_are_stored_once_under_their_hash_and_linked(tmp_path: Path) -> None:
    with serving(tmp_path, Faults()) as address, closing(connect_ssh(address)) as board:
        source = blob(tmp_path, 100_000)
        first = board.put(source, f"{board.workdir}/a")
        second = board.put(source, f"{board.workdir}/b")

    work = tmp_path / "work"
    assert (first, second) == (True, False)
    assert os.listdir(work / "cas") == [sha256_of(source)]
    assert (work / "a").samefile(work / "b")


def test_progress_ends_at_the_file_size(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with serving(tmp_path, Faults()) as address, closing(connect_ssh(address)) as board:
        board.put(blob(tmp_path, 100_000), f"{board.workdir}/a", lambda *at: seen.append(at))

    assert seen[-1] == (100_000, 100_000)


def test_changed_host_keys_are_refused_before_login(tmp_path: Path) -> None:
    with serving(tmp_path, Faults()) as address:
        other = new_key(tmp_path / "other")
        wrong = replace(address, host_key=f"{other.get_name()} {other.get_base64()}")

        with pytest.raises(BoardUnreachable, match=r"stub at .*has the host key SHA256:.*pinned"):
            connect_ssh(wrong)


def test_unknown_client_keys_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path, Faults()) as address:
        new_key(tmp_path / "stranger")

        with pytest.raises(BoardUnreachable, match=r"refuses root's key .*stranger"):
            connect_ssh(replace(address, key_file=tmp_path / "stranger"))


@pytest.mark.parametrize("text", ["", "ssh-ed25519", "ssh-ed25519 !!!", "nosuch AAAA"])
def test_error_names_an_invalid_host_key(tmp_path: Path, text: str) -> None:
    with serving(tmp_path, Faults()) as address, pytest.raises(FarmError, match=r"host_key"):
        connect_ssh(replace(address, host_key=text))


SHELLS = ("sh", "bash", "dash", "fish", "tcsh", "zsh")


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell)])
@pytest.mark.parametrize("greeting", ["", "echo welcome to it; echo warning 1>&2; "])
def test_any_login_shell_runs_commands_and_receives_files(
    tmp_path: Path, shell: str, greeting: str
) -> None:
    """tcsh has no `1>&2`: it prints the text as another line."""
    faults = Faults(login_shell=(shell,), greeting=greeting)
    source = tmp_path / "blob"
    source.write_bytes(bytes(range(256)) * 999)
    with serving(tmp_path, faults) as address, closing(connect_ssh(address)) as board:
        result = board.run(["printf", "%s|", *HOSTILE])
        failed = board.run(["sh", "-c", "echo err >&2; exit 3"])
        board.put(source, f"{board.workdir}/it's")
        board.get(f"{board.workdir}/it's", tmp_path / "back")

    assert result.stdout == "".join(f"{text}|" for text in HOSTILE).encode()
    assert (failed.status, failed.stdout, failed.stderr) == (3, b"", b"err\n")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_output_arrives_while_the_command_runs(tmp_path: Path) -> None:
    seen: list[tuple[str, bytes]] = []

    def sink(stream: str, data: bytes) -> None:
        seen.append((stream, data))
        (tmp_path / "go").touch()

    wait = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"
    with (
        serving(tmp_path, Faults(greeting="echo hi; ")) as address,
        closing(connect_ssh(address)) as board,
    ):
        board.run(["sh", "-c", f"echo one; {wait}; echo two >&2"], timeout_s=120, sink=sink)

    assert seen == [("stdout", b"one\n"), ("stderr", b"two\n")]


def path_without(folder: Path, *missing: str, **scripts: str) -> dict[str, str]:
    """Return an environment whose PATH lacks some programs and contains some scripts."""
    place = folder / "bin"
    place.mkdir()
    for tool in (*TOOLS, "sh", "ls", "true", "sleep", "printf"):
        if tool not in missing and tool not in scripts:
            (place / tool).symlink_to(shutil.which(tool) or "")
    for name, text in scripts.items():
        (place / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / name).chmod(0o755)
    return {"PATH": str(place)}


def test_timeout_of_an_old_busybox_is_used(tmp_path: Path) -> None:
    old = '[ "$1 $2 $3" = "-s KILL -t" ] || exit 127; limit=$4; shift 4; exec /usr/bin/timeout'
    environment = path_without(tmp_path, timeout=f'{old} -s KILL "$limit" "$@"')
    faults = Faults(environment=environment)
    with serving(tmp_path, faults) as address, closing(connect_ssh(address)) as board:
        assert board.run(["printf", "hello"]).stdout == b"hello"
        with pytest.raises(JobFailed, match="did not end within 1 s"):
            board.run(["sleep", "30"], timeout_s=1)


def test_error_names_missing_tools(tmp_path: Path) -> None:
    faults = Faults(environment=path_without(tmp_path, "timeout", "sha256sum"))
    with (
        serving(tmp_path, faults) as address,
        pytest.raises(FarmError, match=r"stub: it has no sha256sum, timeout .*install coreutils"),
    ):
        connect_ssh(address)


def test_error_names_a_noexec_work_folder(tmp_path: Path) -> None:
    chmod = 'case $2 in */.probe.*) exit 0;; esac; exec /bin/chmod "$@"'
    faults = Faults(environment=path_without(tmp_path, chmod=chmod))
    with (
        serving(tmp_path, faults) as address,
        pytest.raises(FarmError, match=r"cannot be run in .*work: .* noexec.*another workdir"),
    ):
        connect_ssh(address)


def test_error_for_a_login_without_a_shell_has_its_output(tmp_path: Path) -> None:
    faults = Faults(greeting="echo 'This account is not available'; exit 1; ")
    with (
        serving(tmp_path, faults) as address,
        pytest.raises(
            BoardRefused, match=r"not start `sh` .*'This account is not available'.*chsh"
        ),
    ):
        connect_ssh(address)


def test_rsa_keys_log_in(tmp_path: Path) -> None:
    with serving(tmp_path, Faults(), rsa=True) as address, closing(connect_ssh(address)) as board:
        assert board.run(["true"]).ok


def test_keys_with_a_passphrase_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path, Faults()) as address:
        paramiko.RSAKey.generate(2048).write_private_key_file(
            str(tmp_path / "locked"), password="secret"
        )
        with pytest.raises(FarmError, match="it has a passphrase, and no one can type it"):
            connect_ssh(replace(address, key_file=tmp_path / "locked"))


def test_error_names_a_missing_client_key(tmp_path: Path) -> None:
    with (
        serving(tmp_path, Faults()) as address,
        pytest.raises(FarmError, match=r"cannot use the key .*nosuch: No such file or directory;"),
    ):
        connect_ssh(replace(address, key_file=tmp_path / "nosuch"))


def test_silent_servers_time_out(tmp_path: Path) -> None:
    with (
        serving(tmp_path, Faults(silent=True)) as address,
        pytest.raises(BoardUnreachable, match=r"stub at .* does not answer"),
    ):
        connect_ssh(address, timeout_s=0.5)


def test_refused_connections_are_reported(tmp_path: Path) -> None:
    with serving(tmp_path, Faults()) as address:
        pass
    with pytest.raises(BoardUnreachable, match=r"stub at .* does not answer"):
        connect_ssh(address, timeout_s=2)


def test_truncated_uploads_are_found_by_hash_and_removed(tmp_path: Path) -> None:
    faults = Faults(lose_writes_after=65_536)
    with (
        serving(tmp_path, faults) as address,
        closing(connect_ssh(address)) as board,
        pytest.raises(FarmError, match=r"arrived damaged.*: 65536 of 150000 bytes"),
    ):
        board.put(blob(tmp_path, 150_000), f"{board.workdir}/a")
    assert os.listdir(tmp_path / "work") == ["cas"]
    assert os.listdir(tmp_path / "work" / "cas") == []


def test_disk_that_fills_during_an_upload_is_reported_as_full(tmp_path: Path) -> None:
    faults = Faults(lose_writes_after=65_536, free_bytes=[1_000_000, 4096])
    with (
        serving(tmp_path, faults) as address,
        closing(connect_ssh(address)) as board,
        pytest.raises(FarmError, match=r"stub: disk full: blob needs 150000 bytes in .*/cas, 4096"),
    ):
        board.put(blob(tmp_path, 150_000), f"{board.workdir}/a")
    assert os.listdir(tmp_path / "work" / "cas") == []


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("df -P -k", b""),
        ("df -P -k", b"\xff\xfe"),
        ("df -P -k", b"head\nfs 1 1 many 1% /\n"),
        ("df -P -k", b"head\nfs 1 1 " + b"9" * 5000 + b" 1% /\n"),
        ("sha256sum", b"\xff" * 64),
        ("sha256sum", b"0" * 63 + b"\xc3"),
    ],
)
def test_malformed_answers_are_board_faults(tmp_path: Path, word: str, answer: bytes) -> None:
    with (
        serving(tmp_path, Faults(answers={word: answer})) as address,
        closing(connect_ssh(address)) as board,
        pytest.raises(FarmError, match=r"^stub: (df says|upload of .* arrived damaged)"),
    ):
        board.put(blob(tmp_path, 1000), f"{board.workdir}/a")


def test_malformed_counts_are_zero(tmp_path: Path) -> None:
    faults = Faults(lose_writes_after=10, answers={"wc -c": b"9" * 5000 + b" part\n"})
    with (
        serving(tmp_path, faults) as address,
        closing(connect_ssh(address)) as board,
        pytest.raises(FarmError, match=r"arrived damaged.*: 0 of 1000 bytes"),
    ):
        board.put(blob(tmp_path, 1000), f"{board.workdir}/a")


def test_work_folder_is_private(tmp_path: Path) -> None:
    with serving(tmp_path, Faults()) as address:
        inner = replace(address, workdir=str(tmp_path / "a" / "b"))
        connect_ssh(inner).close()

    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("mode", "sound"), [(0o755, True), (0o777, False), (0o770, False)])
def test_work_folders_writable_by_others_are_refused(
    tmp_path: Path, mode: int, sound: bool
) -> None:
    with serving(tmp_path, Faults()) as address:
        (tmp_path / "work").chmod(mode)
        expected = (
            nullcontext() if sound else pytest.raises(FarmError, match="written by other users")
        )
        with expected:
            connect_ssh(address).close()


def test_work_folders_that_are_links_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path, Faults()) as address:
        (tmp_path / "link").symlink_to(tmp_path / "work")
        with pytest.raises(FarmError, match=r"link is a link, or belongs to another user"):
            connect_ssh(replace(address, workdir=str(tmp_path / "link")))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_work_folders_of_other_users_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path, Faults()) as address:
        try:
            os.chown(tmp_path / "work", 12345, 12345)
        except OSError as error:  # a sandbox may have no other user
            pytest.skip(f"no folder can be given away here: {error}")
        with pytest.raises(FarmError, match=r"belongs to another user"):
            connect_ssh(address)


def test_damaged_stored_files_are_sent_again(tmp_path: Path) -> None:
    with serving(tmp_path, Faults()) as address, closing(connect_ssh(address)) as board:
        source = blob(tmp_path, 1000)
        board.put(source, f"{board.workdir}/a")
        (tmp_path / "work" / "cas" / sha256_of(source)).write_text("rot")

        assert board.put(source, f"{board.workdir}/a")
        assert (tmp_path / "work" / "a").read_bytes() == source.read_bytes()


def test_cut_connections_are_not_verdicts_on_the_command(tmp_path: Path) -> None:
    with (
        serving(tmp_path, Faults(cut_at_command="train")) as address,
        closing(connect_ssh(address)) as board,
        pytest.raises(BoardUnreachable, match=r"stub: connection lost in 'train'"),
    ):
        board.run(["train"])


def test_unresponsive_boards_time_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "GRACE_S", 0.2)
    with (
        serving(tmp_path, Faults(hang_at_command="train")) as address,
        closing(connect_ssh(address)) as board,
        pytest.raises(BoardUnreachable, match=r"stopped answering"),
    ):
        board.run(["train"], timeout_s=0.2)


def test_a_full_disk_here_is_no_fault_of_the_board(tmp_path: Path) -> None:
    (tmp_path / ".fetched.part").symlink_to("/dev/full")
    with (
        serving(tmp_path, Faults()) as address,
        closing(connect_ssh(address)) as board,
        pytest.raises(LogError, match=r"fetched cannot be written: No space .*on this machine"),
    ):
        board.get(str(blob(tmp_path, 100)), tmp_path / "fetched")
    assert not list(tmp_path.glob("*fetched*"))


def test_failed_downloads_leave_no_file(tmp_path: Path) -> None:
    with (
        serving(tmp_path, Faults()) as address,
        closing(connect_ssh(address)) as board,
        pytest.raises(FarmError, match=r"stub: cannot download .*/nosuch: .*nosuch"),
    ):
        board.get(str(tmp_path / "nosuch"), tmp_path / "fetched")
    assert not list(tmp_path.glob("*fetched*"))
