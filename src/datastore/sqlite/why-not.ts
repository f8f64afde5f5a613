// Why a file cannot be used as datastore, with what to do about it.

export function whyNot(error: unknown, { mustExist = false }: { readonly mustExist?: boolean } = {}): string {
  const { code } = error as NodeJS.ErrnoException;
  const text = error instanceof Error ? error.message : String(error);
  if (mustExist && (code === "ENOENT" || code === "ENOTDIR"))
    return "there is no such file; the node agent or `calicoctl apply` creates it; check CALICO_SQLITE_PATH";
  if (code === "EACCES")
    return "this user may not read and write it; run as root, or name another file (CALICO_SQLITE_PATH)";
  if (code === "EROFS" || /readonly database/.test(text))
    return "its file system is read-only, and even reading needs a lock there; mount it for writing, or copy the file and name the copy (CALICO_SQLITE_PATH)";
  if (code === "ENOSPC" || /disk is full/.test(text))
    return `${text}: free some space on its file system; what was there is intact`;
  if (/not a database/.test(text))
    return `${text}: it is something else or damaged; name the right file (CALICO_SQLITE_PATH), or move it away`;
  if (/unable to open/.test(text)) return `${text}: is it a folder, or its folder not there?`;
  return text;
}
