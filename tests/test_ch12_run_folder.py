"""Chapter 12: what a run records of its surroundings, and what its folder keeps."""

import platform

import pytest
import torch

import course_lib
from course_lib import errors, manifest
from tests import runs


def test_the_environment_names_versions_machine_and_device():
    assert manifest.environment(3) == {
        "course_lib": course_lib.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "platform": platform.system(),
        "machine": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": 3,
        "device": "cpu",
    }
    assert manifest.environment(1, "cuda:0")["device"] == "cuda:0"


def test_a_change_since_the_checkpoint_is_told_with_both_values():
    checkpoint = {
        "source": {"digest": manifest.source_record()["digest"]},
        "environment": manifest.environment(1),
    }
    assert manifest.changes_since(checkpoint, 1) == []
    assert manifest.changes_since(checkpoint, 2) == [
        "threads is 2, the checkpoint was made with 1: the run goes on, but perhaps not bit for bit."
    ]


def test_a_used_folder_is_refused_unless_told_otherwise(tmp_path):
    (tmp_path / "notes.txt").write_text("somebody's", encoding="utf-8")
    with pytest.raises(errors.UsageError, match="is in use: it holds notes.txt"):
        with manifest.run_folder(tmp_path):
            pass
    with manifest.run_folder(tmp_path, may_be_used=True) as folder:
        assert folder == tmp_path


def test_no_checkpoint_is_kept_by_its_step_unless_asked_for(tmp_path):
    facts = {"data_folder": None, "source": manifest.source_record(), "command": {}}
    facts["environment"] = manifest.environment(1)
    manifest.save_run(tmp_path, runs.trained(1), **facts)
    assert manifest.kept_checkpoints(tmp_path) == []
    manifest.save_run(tmp_path, runs.trained(2), **facts, keep=1)
    assert [path.name for path in manifest.kept_checkpoints(tmp_path)] == ["checkpoint-000002.pt"]


def test_kept_checkpoints_are_in_the_order_of_their_steps_beyond_six_digits(tmp_path):
    names = ["checkpoint-000007.pt", "checkpoint-999999.pt", "checkpoint-1000000.pt"]
    for name in reversed(names):
        (tmp_path / name).touch()
    assert [path.name for path in manifest.kept_checkpoints(tmp_path)] == names
