"""The embedded store: an OCI image layout folder, standard library only, on hosts and targets.

A capsule is one OCI manifest (artifactType ``application/vnd.coldsnap.capsule.v1+json``): its
config blob is the descriptor, each layer is one file under its path. Blobs are used in place
through hard links, equal files exist once, all blobs are 0400.

On a target, after a checkpoint::

    measured = measure(capture_dir, paths)                # bytes and digests, hashed once
    done = publish(store_path, capture_dir, descriptor_draft, tags=["qwen"])
    done.manifest                                         # "sha256:..." names the artifact

``publish`` takes a draft descriptor whose ``capsule.objects`` and
``weights.model_payloads.objects`` list {role, owner, path, bytes, sha256} of files below
`capture_dir`. It links (never copies, on one file system), checks every digest unless
`measure`'s evidence says that the file is unchanged, and can be repeated after a crash, even
when `capture_dir` is gone by then. Roles with a media type of their own: ``criu-image``,
``model-weight-payload``, ``model-weight-payload-index``, ``shm``, ``cache``; others are free.

Before a restore::

    store = open_store(store_path)
    artifact = find(store, "qwen")                        # or a digest, or its first 6+ digits
    image = materialise(store, artifact.digest, folder, policy="record", pin=f"{unit}.{gen}")
    image.folder / "criu" / "inventory.img"               # laid out as in capture_dir

``materialise`` verifies every file first (``record``: unchanged since it was last hashed;
``full``: every byte) and raises ``store.blob-missing`` or ``store.blob-differs`` with the file's
name. The files are the store's own: read them, never write or chmod them; copy what the restore
must write. ``unpin(store, f"{unit}.{gen}")`` when the generation is gone.

"Captured already?" is ``resolve(store, request_sha256=..., unit=...)``; None is no.
`list_artifacts`, `inspect`, `verify`, `tag`, `delete` and `collect` do what they say.

Each name is imported from its module (``from coldsnap.artifact.oci.read import find``): nothing is
gathered here, because a verb on a target must start within milliseconds.
"""
