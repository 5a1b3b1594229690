"""The data directory and its locks are closed to other users."""

import os

import pytest

from controlplane.embedded import private_files, secret_key


def mode(path):
    return path.stat().st_mode & 0o7777


def test_a_new_data_directory_is_closed(tmp_path):
    private_files.prepare(tmp_path / "a" / "var")
    assert mode(tmp_path / "a" / "var") == 0o700


@pytest.mark.parametrize("names", [[], ["secret_key", "standalone.lock", "postgres.lock", "postgres", "broker"]])
def test_one_of_an_earlier_time_is_closed(tmp_path, names):
    data_dir = tmp_path / "var"
    data_dir.mkdir(mode=0o755)
    for name in names:
        (data_dir / name).touch()
    private_files.prepare(data_dir)
    assert mode(data_dir) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_another_user_with_a_database_inside_may_pass_through_but_not_list_it(tmp_path):
    data_dir = tmp_path / "var"
    data_dir.mkdir(mode=0o755)
    (data_dir / "postgres").mkdir()
    os.chown(data_dir / "postgres", 65534, 65534)
    private_files.prepare(data_dir)
    assert mode(data_dir) == 0o711


@pytest.mark.parametrize("before", [0o755, 0o777, 0o1777])
def test_a_directory_that_holds_something_else_or_that_others_share_is_left_as_it_is(tmp_path, before):
    data_dir = tmp_path / "var"
    data_dir.mkdir()
    data_dir.chmod(before)
    if before == 0o755:
        (data_dir / "manage.py").touch()
    private_files.prepare(data_dir)
    assert mode(data_dir) == before


def test_a_lock_can_be_opened_by_its_user_alone_however_it_was_made(tmp_path):
    lock = tmp_path / "standalone.lock"
    lock.touch(0o644)
    os.close(private_files.open_lock(lock))
    os.close(private_files.open_lock(tmp_path / "new.lock"))
    assert mode(lock) == mode(tmp_path / "new.lock") == 0o600


def test_the_key_is_in_a_closed_directory(tmp_path):
    private_files.prepare(tmp_path / "var")
    secret_key.load_or_create_key(tmp_path / "var")
    assert mode(tmp_path / "var") == 0o700 and mode(tmp_path / "var" / "secret_key") == 0o600
