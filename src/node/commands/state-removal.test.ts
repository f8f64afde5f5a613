import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { planRemoval, type RemovalOptions } from "./state-removal.ts";

const DATABASE = "SQLite format 3\0 and pages";

/** A folder `state` to empty, with other files next to it. Paths are relative to the folder of both. */
class Scratch implements Disposable {
  readonly #folder = realpathSync(mkdtempSync(join(tmpdir(), "state-removal-")));

  file(path: string, content = ""): void {
    mkdirSync(dirname(this.at(path)), { recursive: true });
    writeFileSync(this.at(path), content);
  }

  link(path: string, target: string): void {
    symlinkSync(this.at(target), this.at(path));
  }

  at(path: string): string {
    return join(this.#folder, path);
  }

  plan({
    datastore = "state/calico.db",
    ...options
  }: Partial<Omit<RemovalOptions, "mountPoints">> & { mounts?: string[] }) {
    const { mounts = [], ...rest } = options;
    const plan = planRemoval({
      folders: [this.at("state")],
      datastore: this.at(datastore),
      purge: false,
      mountPoints: new Set(["/", ...mounts.map((mount) => this.at(mount))]),
      ...rest,
    });
    const short = (path: string) => path.slice(this.#folder.length + 1);
    return {
      files: plan.files.map(short).sort(),
      directories: plan.directories.map(short),
      purged: plan.purged.map(short).sort(),
      kept: plan.kept.map(({ path }) => short(path)).sort(),
    };
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

test("planRemoval: keeps databases, found by name or header, and the files next to them", () => {
  using scratch = new Scratch();
  for (const name of ["calico.db", "calico.db-wal", "calico.db-shm", "calico.db-changed"])
    scratch.file(`state/${name}`);
  scratch.file("state/sub/copy", DATABASE);
  scratch.file("state/sub/copy-journal");
  scratch.file("state/sub/short", "SQLite format");
  scratch.file("state/deep/er/nodename");
  const kept = ["calico.db", "calico.db-changed", "calico.db-shm", "calico.db-wal", "sub/copy", "sub/copy-journal"];
  expect(scratch.plan({})).toEqual({
    files: ["state/deep/er/nodename", "state/sub/short"],
    directories: ["state/deep/er", "state/deep"],
    purged: [],
    kept: kept.map((name) => `state/${name}`),
  });
  const { files, directories, purged, kept: keptByPurge } = scratch.plan({ purge: true });
  expect(purged).toEqual(kept.map((name) => `state/${name}`));
  expect(files).toEqual([...purged, "state/deep/er/nodename", "state/sub/short"].sort());
  expect(directories).toEqual(["state/deep/er", "state/deep", "state/sub"]);
  expect(keptByPurge).toEqual([]);
});

test("planRemoval: keeps an empty file with the configured name of the datastore", () => {
  using scratch = new Scratch();
  scratch.file("state/run/store");
  scratch.file("state/run/store-changed");
  scratch.file("state/run/other");
  expect(scratch.plan({ datastore: "state/run/store" })).toMatchObject({
    files: ["state/run/other"],
    directories: [],
    kept: ["state/run/store", "state/run/store-changed"],
  });
});

test("planRemoval: deletes links without following them, except links to the datastore", () => {
  using scratch = new Scratch();
  scratch.file("elsewhere/data/calico.db", DATABASE);
  scratch.file("elsewhere/logs/felix.log");
  scratch.file("state/nodename");
  scratch.link("state/data", "elsewhere/data");
  scratch.link("state/logs", "elsewhere/logs");
  scratch.link("state/broken", "elsewhere/nothing");
  expect(scratch.plan({ datastore: "state/data/calico.db" })).toEqual({
    files: ["state/broken", "state/logs", "state/nodename"],
    directories: [],
    purged: [],
    kept: ["elsewhere/data/calico.db", "state/data"],
  });
  expect(scratch.plan({ datastore: "state/data/calico.db", purge: true })).toMatchObject({
    purged: ["elsewhere/data/calico.db", "state/data"],
    kept: [],
  });
});

test("planRemoval: keeps mount points and everything below them, even with purge", () => {
  using scratch = new Scratch();
  scratch.file("state/shared/calico.db", DATABASE);
  scratch.file("state/a/volume/data");
  scratch.file("state/a/file");
  const mounts = ["state", "state/shared", "state/a/volume"]; // the folder itself may be one
  const datastore = "state/shared/calico.db";
  for (const purge of [false, true])
    expect(scratch.plan({ purge, datastore, mounts })).toEqual({
      files: ["state/a/file"],
      directories: [],
      purged: [],
      kept: ["state/a/volume", "state/shared", "state/shared/calico.db"],
    });
});

test("planRemoval: purges a datastore outside the state folder only if both are on the same mount", () => {
  using scratch = new Scratch();
  scratch.file("state/nodename");
  scratch.file("elsewhere/calico.db", DATABASE);
  scratch.file("elsewhere/calico.db-changed");
  const files = ["elsewhere/calico.db", "elsewhere/calico.db-changed"];
  const datastore = "elsewhere/calico.db";
  expect(scratch.plan({ datastore })).toMatchObject({ files: ["state/nodename"], kept: files });
  expect(scratch.plan({ datastore, purge: true })).toMatchObject({ purged: files, kept: [] });
  expect(scratch.plan({ datastore, purge: true, mounts: ["elsewhere"] })).toMatchObject({ purged: [], kept: files });
  expect(scratch.plan({ datastore, purge: true, folders: [scratch.at("missing")] })).toMatchObject({
    purged: [],
    kept: files,
  });
});
