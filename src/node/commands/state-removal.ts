// Decides what `calico-node -uninstall` deletes from Calico's state folders. Two things are never deleted: mount points with
// everything below them, because their data may belong to other hosts, and, without `purge`, every SQLite database.
import { existsSync, lstatSync, readdirSync, realpathSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { databaseOf, filesOfDatabase, isSqliteFile } from "../../datastore/index.ts";

export interface RemovalPlan {
  readonly files: readonly string[];
  /** Empty once `files` are deleted; a directory follows those inside it. */
  readonly directories: readonly string[];
  /** Those of `files` that belong to datastores; empty without `purge`. */
  readonly purged: readonly string[];
  readonly kept: readonly Kept[];
}

export interface Kept {
  readonly path: string;
  readonly kind: "datastore" | "mount point";
  /** Set if `purge` does not apply, because the file is on another mount. */
  readonly isOnOtherMount: boolean;
}

export interface RemovalOptions {
  /** Emptied, not deleted: each may itself be a mount point. The first one decides which mount `purge` applies to. */
  readonly folders: readonly string[];
  /** The SQLite datastore that the environment names, which need not exist. */
  readonly datastore: string;
  /** Deletes datastores as well. */
  readonly purge: boolean;
  /** All mount points of this mount namespace. */
  readonly mountPoints: ReadonlySet<string>;
}

export function planRemoval(options: RemovalOptions): RemovalPlan {
  const { purge, mountPoints } = options;
  const folders = options.folders.filter((folder) => existsSync(folder)).map((folder) => realpathSync(folder));
  const datastore = existsSync(options.datastore) ? realpathSync(options.datastore) : undefined;
  const files: string[] = [];
  const directories: string[] = [];
  const purged: string[] = [];
  const kept: Kept[] = [];

  /** @returns whether the folder will be empty */
  const walk = (folder: string, device: number): boolean => {
    let isEmptied = true;
    for (const name of readdirSync(folder).sort()) {
      const path = join(folder, name);
      const status = lstatSync(path, { throwIfNoEntry: false });
      if (status === undefined) continue; // deleted meanwhile
      let isRemoved = true;
      // A bind mount may have the device of its parent; a subvolume has another one without being in the mount table. Only
      // directories are compared: files on an overlay have the device of the layer they are in.
      if (mountPoints.has(path) || (status.isDirectory() && status.dev !== device)) {
        kept.push({ path, kind: "mount point", isOnOtherMount: true });
        isRemoved = false;
      } else if (status.isDirectory()) isRemoved = walk(path, device);
      else if ([path, databaseOf(path)].some((file) => isSqliteFile(file) || leadsTo(datastore, file))) {
        if (purge) purged.push(path);
        else kept.push({ path, kind: "datastore", isOnOtherMount: false });
        isRemoved = purge;
      }
      if (isRemoved) (status.isDirectory() ? directories : files).push(path);
      else isEmptied = false;
    }
    return isEmptied;
  };
  for (const folder of folders) walk(folder, lstatSync(folder).dev);

  // The datastore may be elsewhere, or below a mount point that the walk did not cross.
  const seen = new Set([...purged, ...kept.map(({ path }) => path)]);
  if (datastore !== undefined && !seen.has(datastore)) {
    const home = folders[0];
    const isOnOtherMount = home === undefined || !isSameMount(datastore, home, mountPoints);
    for (const path of filesOfDatabase(datastore).filter((file) => existsSync(file)))
      if (purge && !isOnOtherMount) {
        purged.push(path);
        files.push(path);
      } else kept.push({ path, kind: "datastore", isOnOtherMount });
  }
  return { files, directories, purged, kept };
}

/** Whether `link` is, or leads to a parent directory of, the configured datastore. */
function leadsTo(datastore: string | undefined, link: string): boolean {
  if (datastore === undefined || !existsSync(link)) return false;
  const target = realpathSync(link);
  return datastore === target || datastore.startsWith(`${target}/`);
}

function isSameMount(one: string, other: string, mountPoints: ReadonlySet<string>): boolean {
  return mountOf(one, mountPoints) === mountOf(other, mountPoints) && statSync(one).dev === statSync(other).dev;
}

/** The mount point at or above a path without symbolic links. */
function mountOf(path: string, mountPoints: ReadonlySet<string>): string {
  return path === "/" || mountPoints.has(path) ? path : mountOf(dirname(path), mountPoints);
}
