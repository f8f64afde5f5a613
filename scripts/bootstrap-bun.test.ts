// Checks that a Bun from the registry is not run if its hash differs from that in the repository. `npm` is replaced by a fake
// that returns a package chosen by the test.
import { afterAll, beforeEach, expect, test } from "bun:test";
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const folder = mkdtempSync(join(tmpdir(), "bootstrap-bun-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const PACKAGES = ["x64", "aarch64", "x64-musl", "aarch64-musl"].map((name) => `@oven/bun-linux-${name}`);
const VERSION = "1.2.3";
const EXECUTABLE = '#!/bin/sh\ntouch "$(dirname "$0")/was-run"\n';
const root = join(folder, "checkout");
const target = join(folder, "target");
const archive = join(folder, "package.tgz");

/** Creates a package with this executable, and a script that npm would run after its installation. */
function pack(executable: string): void {
  const contents = join(folder, "contents");
  rmSync(contents, { recursive: true, force: true });
  mkdirSync(join(contents, "package/bin"), { recursive: true });
  writeFileSync(join(contents, "package/bin/bun"), executable);
  const manifest = {
    name: PACKAGES[0],
    version: VERSION,
    scripts: { postinstall: `touch ${join(folder, "script-ran")}` },
  };
  writeFileSync(join(contents, "package/package.json"), JSON.stringify(manifest));
  execFileSync("tar", ["-C", contents, "-czf", archive, "package"]);
}
const hash = (algorithm: string, bytes: string | Buffer, encoding: "hex" | "base64"): string =>
  createHash(algorithm).update(bytes).digest(encoding);

function record(parts: { readonly integrity: string; readonly sha256: string }): void {
  const locked = PACKAGES.map(
    (name) => `    "${name}": ["${name}@${VERSION}", "", { "os": "linux" }, "${parts.integrity}"],`,
  );
  writeFileSync(join(root, "bun.lock"), `{\n  "packages": {\n${locked.join("\n")}\n  }\n}\n`);
  writeFileSync(
    join(root, "scripts/bun.sha256"),
    PACKAGES.map((name) => `${parts.sha256}  ${name}@${VERSION}\n`).join(""),
  );
}
const good = () => ({
  integrity: `sha512-${hash("sha512", readFileSync(archive), "base64")}`,
  sha256: hash("sha256", EXECUTABLE, "hex"),
});

beforeEach(() => {
  for (const path of [root, target, join(folder, "script-ran")]) rmSync(path, { recursive: true, force: true });
  mkdirSync(join(root, "scripts"), { recursive: true });
  mkdirSync(join(folder, "bin"), { recursive: true });
  cpSync(join(import.meta.dir, "bootstrap-bun.sh"), join(root, "scripts/bootstrap-bun.sh"));
  writeFileSync(join(root, "package.json"), JSON.stringify({ devDependencies: { bun: VERSION } }, null, 2));
  writeFileSync(join(folder, "bin/npm"), `#!/bin/sh\ncp ${archive} oven-bun.tgz\n`);
  chmodSync(join(folder, "bin/npm"), 0o755);
  pack(EXECUTABLE);
});

function bootstrap(...args: readonly string[]): { readonly code: number | null; readonly stderr: string } {
  const env = { ...process.env, PATH: `${join(folder, "bin")}:${process.env["PATH"]}` };
  const words = args.length === 0 ? [target] : args;
  const { status, stderr } = spawnSync(join(root, "scripts/bootstrap-bun.sh"), words, { env, encoding: "utf8" });
  return { code: status, stderr };
}

test("a package with the recorded hashes is unpacked, and its scripts do not run", () => {
  record(good());
  expect(bootstrap()).toEqual({ code: 0, stderr: "" });
  expect(readFileSync(join(target, "bun"), "utf8")).toBe(EXECUTABLE);
  expect(readdirSync(target)).toEqual(["bun"]);
  expect(existsSync(join(folder, "script-ran"))).toBe(false);
});

test("a package with another hash than in bun.lock is not unpacked", () => {
  record(good());
  pack(`${EXECUTABLE}# changed\n`);
  const { code, stderr } = bootstrap();
  expect(code).toBe(1);
  expect(stderr).toMatch(
    /^setup: the downloaded @oven\/bun-linux-\S+@1\.2\.3 is not the one in bun\.lock: its hash is sha512-/,
  );
  expect(readdirSync(target)).toEqual([]);
});

test("an executable with another SHA-256 than recorded is not used, whether downloaded or existing", () => {
  record({ ...good(), sha256: "0".repeat(64) });
  const { code, stderr } = bootstrap();
  expect(code).toBe(1);
  expect(stderr).toMatch(
    /^setup: \S+ is not the executable of @oven\/bun-linux-\S+@1\.2\.3: its SHA-256 is [0-9a-f]{64}, not 0{64}/,
  );
  expect(existsSync(join(target, "bun"))).toBe(false);
  record(good());
  expect(bootstrap().code).toBe(0);
  writeFileSync(join(target, "bun"), `${EXECUTABLE}# changed\n`);
  expect(bootstrap()).toMatchObject({ code: 1, stderr: expect.stringContaining("is not the executable of") });
  expect(bootstrap("--check", join(target, "bun")).code).toBe(1);
  expect(existsSync(join(target, "was-run"))).toBe(false);
});

test("a version without recorded hashes is rejected", () => {
  record(good());
  writeFileSync(join(root, "scripts/bun.sha256"), "");
  expect(bootstrap()).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("scripts/bun.sha256 has no SHA-256 of"),
  });
  writeFileSync(join(root, "bun.lock"), "{}\n");
  expect(bootstrap()).toMatchObject({ code: 1, stderr: expect.stringContaining("bun.lock has no integrity hash of") });
});

test("the Bun of this checkout is the recorded one", () => {
  const script = join(import.meta.dir, "bootstrap-bun.sh");
  const { status, stderr } = spawnSync(script, ["--check", process.execPath], { encoding: "utf8" });
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
});

test("a package with another hash than in the lock file is not installed", async () => {
  const tarball = readFileSync(archive);
  await using registry = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch({ url }) {
      if (url.endsWith(".tgz")) return new Response(tarball);
      const dist = { tarball: new URL("/a/-/a-1.0.0.tgz", url).href, integrity: good().integrity };
      return Response.json({
        name: "a",
        "dist-tags": { latest: "1.0.0" },
        versions: { "1.0.0": { name: "a", version: "1.0.0", dist } },
      });
    },
  });
  const install = async (integrity: string) => {
    const project = mkdtempSync(join(folder, "project-"));
    writeFileSync(join(project, "package.json"), JSON.stringify({ name: "p", dependencies: { a: "1.0.0" } }));
    const lock = {
      lockfileVersion: 1,
      workspaces: { "": { name: "p", dependencies: { a: "1.0.0" } } },
      packages: { a: ["a@1.0.0", "", {}, integrity] },
    };
    writeFileSync(join(project, "bun.lock"), JSON.stringify(lock));
    const child = Bun.spawn([process.execPath, "install", "--frozen-lockfile"], {
      cwd: project,
      env: {
        ...process.env,
        BUN_CONFIG_REGISTRY: registry.url.href,
        NPM_CONFIG_REGISTRY: registry.url.href,
        BUN_INSTALL_CACHE_DIR: join(project, "cache"),
      },
      stdout: "ignore",
      stderr: "pipe",
    });
    const said = await new Response(child.stderr).text();
    return { code: await child.exited, said, isThere: existsSync(join(project, "node_modules/a/package.json")) };
  };
  expect(await install(good().integrity)).toMatchObject({ code: 0, isThere: true });
  const changed = await install(`sha512-${hash("sha512", "another package", "base64")}`);
  expect({ code: changed.code, isThere: changed.isThere }).toEqual({ code: 1, isThere: false });
  expect(changed.said.toLowerCase()).toContain("integrity");
});
