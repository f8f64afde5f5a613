// Describes why a file cannot be used as a datastore, and what the operator can do.

export function describeFileError(
  error: unknown,
  { mustExist = false }: { readonly mustExist?: boolean } = {},
): string {
  const { code } = error as NodeJS.ErrnoException;
  const text = error instanceof Error ? error.message : String(error);
  if (mustExist && (code === "ENOENT" || code === "ENOTDIR"))
    return "there is no such file; the node agent or `calicoctl apply` creates it; check CALICO_SQLITE_PATH";
  if (code === "EACCES")
    return "no permission to read and write the file; run as root, or set CALICO_SQLITE_PATH to another file";
  if (code === "EROFS" || /readonly database/.test(text))
    return "the file system is read-only, but even reading needs a lock file; mount it read-write, or copy the file and set CALICO_SQLITE_PATH to the copy";
  if (code === "ENOSPC" || /disk is full/.test(text))
    return `${text}; free space on the file system of the datastore (the stored data is intact)`;
  if (/not a database/.test(text))
    return `${text}; it is damaged or has another format; set CALICO_SQLITE_PATH to the right file, or move this one away`;
  if (/unable to open/.test(text)) return `${text}; it may be a directory, or its directory may be missing`;
  return text;
}
