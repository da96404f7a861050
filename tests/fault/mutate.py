"""mutate.py NAME SOURCE_DIR OUTPUT: writes a production source with one planted bug.

Each mutant names its file and the texts to replace, which must be there exactly
once: a mutant that no longer fits its source is an error of the build, so that it
can't come to test nothing. CMakeLists.txt says which campaign must catch it.
"""
import sys

MUTANTS = {
    # A page has its name before its bytes are on the device.
    "rename_before_sync": ("src/tier/publish.c", [
        ("        status = cairn__sync_data(batch->items[i].fd);\n", "        status = CAIRN_OK;\n"),
        ("        it->renamed = status == CAIRN_OK;\n",
         "        it->renamed = status == CAIRN_OK;\n        if (!status)\n            status = cairn__sync_data(it->fd);\n"),
    ]),
    # Flush returns, and the name is not on the device.
    "no_folder_sync": ("src/tier/publish.c", [
        ("        cairn_status status = cairn__sync_dir(f->fd);\n", "        cairn_status status = CAIRN_OK;\n"),
    ]),
    # The key in the name and header is believed.
    "no_token_compare": ("src/store/child.c", [
        ("cairn__page_match(&file->header, want->tokens, want->n_tokens) == want->n_tokens;",
         "cairn__page_match(&file->header, want->tokens, 1) <= 1;"),
    ]),
    "no_checksum_of_last_block": ("src/core/page.c", [
        ("    return memcmp(&sum, &entry.checksum, sizeof(sum)) == 0 ? CAIRN_OK : CAIRN_ECORRUPT;\n",
         "    bool last = block + 1 == header->n_blocks;\n"
         "    return last || memcmp(&sum, &entry.checksum, sizeof(sum)) == 0 ? CAIRN_OK : CAIRN_ECORRUPT;\n"),
    ]),
    # What was verified is not what the caller gets: a second read comes after.
    "other_buffer": ("src/tier/page_file.c", [
        ("    return status ? status : cairn__page_prove_block(root->keyring, &file->header, block, dst);\n",
         "    if (!status)\n"
         "        status = cairn__page_prove_block(root->keyring, &file->header, block, dst);\n"
         "    uint64_t size = file->block_size[block], at = file->block_offset[block];\n"
         "    return status ? status : cairn__read_at(file->fd, dst, (size_t)size, at);\n"),
    ]),
    # What was decrypted is taken without looking at its tag.
    "tag_not_compared": ("src/core/seal.c", [
        ("        status = cairn__gcm_open_tag(gcm, tag);\n", "        (void)!cairn__gcm_open_tag(gcm, tag);\n"),
    ]),
    # The adapter's form of it: verified in one buffer, imported from another.
    "other_buffer_imported": ("src/llama/fetch.c", [
        ("        return read_into(reader, page, block, end, cairn__stage_data(r->stage) + at);\n",
         "        (void)!read_into(reader, page, block, end, cairn__stage_data(r->stage) + at);\n"
         "        void        *seen = malloc(view.block_size[block]);\n"
         "        cairn_status status = seen ? cairn_pin_read_block(r->fetch->pin, r->first_page + page, block, seen) : CAIRN_ENOMEM;\n"
         "        free(seen);\n"
         "        return status;\n"),
    ]),
    # What the device gave many blocks at a time is taken as it is.
    "window_not_proven": ("src/tier/page_file.c", [
        ("    return have ? cairn__page_prove_block(root->keyring, &file->header, block, dst)\n", "    return have ? CAIRN_OK\n"),
    ]),
    "budget_after_write": ("src/store/writer.c", [
        ("    cairn_status status = cairn__store_reserve(store, cost);\n", "    cairn_status status = CAIRN_OK;\n"),
        ("    w->reserved += cost;\n", ""),
        ("    it->written = true;\n",
         "    it->written = true;\n    if (cairn__store_reserve(store, cost) == CAIRN_OK)\n        w->reserved += cost;\n"),
    ]),
    # What could not be removed is given back to the budget all the same.
    "leftover_not_counted": ("src/tier/publish.c", [
        ("        batch->side_bytes += blocks_of(batch, fd);\n}\n", "        (void)blocks_of(batch, fd);\n}\n"),
    ]),
    # A file that could not be looked at counts as nothing.
    "count_with_gaps": ("src/tier/scan.c", [
        ("    if (status && status != CAIRN_ENOENT)\n        w->result.complete = false;\n", "    (void)w;\n"),
    ]),
    # A failed listing is left with its memory.
    "leak_on_error": ("src/tier/listing.c", [
        ("    if (status)\n        destroy_listing(r.listing);\n    else\n", "    if (!status)\n"),
    ]),
    "descriptor_left_open": ("src/tier/page_file.c", [
        ("    status = cairn__open_dir(pages_fd, name, ret_fd);\n    cairn__close(pages_fd);\n",
         "    status = cairn__open_dir(pages_fd, name, ret_fd);\n    if (!status)\n        cairn__close(pages_fd);\n"),
    ]),
}


def main(name, source_dir, output):
    source, changes = MUTANTS[name]
    with open(f"{source_dir}/{source}", encoding="utf-8") as f:
        text = f.read()
    for old, new in changes:
        if text.count(old) != 1:
            sys.exit(f"mutant {name}: {text.count(old)} times in {source}: {old!r}")
        text = text.replace(old, new)
    with open(output, "w", encoding="utf-8") as f:
        f.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
