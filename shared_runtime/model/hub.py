"""A checkpoint by its hub id, `owner/name`."""

from __future__ import annotations

import re
from pathlib import Path

from shared_runtime.errors import CheckpointError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
          "model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json")
"""What is read; a repository often holds the same weights in other formats too."""


def hub_folder(repo_id: str) -> Path:
    """The folder of a hub repository in the hub's own local cache, downloaded when it is not there yet.

    Without a network a copy in the cache is used as it is.

    Raises:
        CheckpointError: huggingface_hub is not installed, the id does not exist or is gated, there is no
            network and no local copy, or the repository holds no safetensors weights.
    """
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            GatedRepoError,
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
            OfflineModeIsEnabled,
            RepositoryNotFoundError,
        )
    except ImportError as error:
        raise CheckpointError("a hub id needs the package huggingface_hub", where=repo_id,
                              fix="pip install 'jumpforward[hub]'") from error
    try:
        folder = Path(snapshot_download(repo_id, allow_patterns=list(_FILES)))
    except GatedRepoError as error:
        raise CheckpointError("the repository is gated", where=repo_id,
                              fix="accept its terms on its page and log in with 'hf auth login'") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise CheckpointError("there is no such model on the hub", where=repo_id,
                              fix="check the spelling; a private one needs 'hf auth login'") from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError, OSError) as error:
        raise CheckpointError("cannot be downloaded, and no local copy is there", where=repo_id,
                              fix="check the network, or give a local folder with --model") from error
    if not (folder / "config.json").exists() or not any(folder.glob("*.safetensors")):
        raise CheckpointError("the repository holds no config.json with safetensors weights", where=repo_id,
                              fix="choose a repository with model.safetensors; a .gguf file can be given by its path")
    return folder
