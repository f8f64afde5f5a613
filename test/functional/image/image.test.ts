// Tests the root file system of the image archive: every program runs in it and prints its version, the probes work, no file
// is setuid, and it contains a bill of materials. Building the Debian layer takes minutes and needs a mirror: it is built by
// `make image`, or here with REQUIRE_IMAGE=1; otherwise only a cached one is used.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { z } from "zod";
import { makeImage } from "../../../scripts/image.ts";
import { isDebianRootCached } from "../../../scripts/image/debian-root.ts";
import { IMAGE } from "../../../scripts/manifests/image.ts";

const hasProgram = existsSync(join(import.meta.dir, "../../../dist/calico"));
/** An archive that was built in another way, for example by buildah from the Containerfile. */
const given = process.env["CALICO_IMAGE_ARCHIVE"];
const canMake = hasProgram && (isDebianRootCached() || process.env["REQUIRE_IMAGE"] === "1");
const canRun = process.getuid?.() === 0 && (given !== undefined || canMake);
if (!canRun) console.error("IMAGE TESTS SKIPPED: run make image once (it needs root, mmdebstrap and a Debian mirror)");

const folder = mkdtempSync(join(tmpdir(), "image-test-"));
const root = join(folder, "root");
let lowestLayer = "";
const VERSION = IMAGE.slice(IMAGE.lastIndexOf(":") + 1);

beforeAll(async () => {
  if (!canRun) return;
  const archive = given ?? join(folder, "image.tar");
  if (given === undefined) await makeImage(archive);
  execFileSync("tar", ["-C", folder, "-xf", archive]);
  const [{ Layers, RepoTags }] = JSON.parse(readFileSync(join(folder, "manifest.json"), "utf8")) as [
    { Layers: string[]; RepoTags: string[] },
  ];
  expect(RepoTags.filter((tag) => tag.endsWith(IMAGE))).not.toEqual([]);
  lowestLayer = basename(Layers[0] ?? "", ".tar");
  execFileSync("mkdir", [root]);
  for (const layer of Layers) {
    execFileSync("tar", ["-C", root, "--numeric-owner", "-xf", join(folder, layer)]);
    whiteOut();
  }
  if (given === undefined) rmSync(archive);
}, 900_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Applies whiteouts: a layer deletes a file by a file with the prefix `.wh.` next to it. */
function whiteOut(): void {
  const whiteouts = execFileSync("find", [root, "-xdev", "-name", ".wh.*"], { encoding: "utf8" });
  for (const whiteout of whiteouts.split("\n").filter((line) => line !== ""))
    for (const path of [whiteout, join(dirname(whiteout), basename(whiteout).slice(".wh.".length))])
      rmSync(path, { recursive: true, force: true });
}

/** Runs a command as in a container: in its own namespaces, with its own /proc and a read-only root. */
function run(command: readonly string[], { user = "0:0" } = {}): { code: number | null; out: string } {
  const script = `mount --make-rprivate / && mount --bind ${root} ${root} && mount -o remount,ro,bind ${root} \
    && mount -t proc proc ${root}/proc && mount --rbind /dev ${root}/dev && ip link set lo up \
    && exec chroot --userspec=${user} ${root} "$@"`;
  const flags = ["--mount", "--pid", "--net", "--ipc", "--fork", "--kill-child"];
  const { status, stdout, stderr } = spawnSync("unshare", [...flags, "sh", "-c", script, "sh", ...command], {
    encoding: "utf8",
    env: { PATH: process.env["PATH"] },
    timeout: 30_000,
  });
  return { code: status, out: (stdout + stderr).trim() };
}

test.skipIf(!canRun)("every program runs in the image", () => {
  for (const [command, out] of [
    ["/usr/bin/calico-node -v", VERSION],
    ["/usr/bin/calico-kube-controllers -v", VERSION],
    ["/usr/bin/check-status -v", VERSION],
    ["/usr/bin/calicoctl version --client", VERSION],
    ["/usr/bin/calico-typha --version", VERSION],
    ["/usr/bin/calico-felix --version", VERSION],
    ["/opt/cni/bin/calico -v", VERSION],
    ["/opt/cni/bin/calico-ipam -v", VERSION],
    ["/opt/cni/bin/install --help", "Install the CNI plugin"],
    ["calico-install --help", "Install the CNI plugin"],
    ["install --version", "GNU coreutils"],
    ["bird --version", "BIRD version 2"],
    ["nft --version", "nftables"],
    ["iptables-legacy --version", "legacy"],
    ["iptables-nft --version", "nf_tables"],
    ["ipset --version", "ipset"],
    ["modprobe --version", "kmod"],
    ["sleep 0", ""],
  ] as const) {
    const answer = run(command.split(" "));
    expect({ command, code: answer.code, says: answer.out.includes(out) ? out : answer.out }).toEqual({
      command,
      code: 0,
      says: out,
    });
  }
});

test.skipIf(!canRun)("TC-I13 the probes of the manifests run in the image and print why they fail", () => {
  for (const [command, user, why] of [
    ["/usr/bin/calico-node -felix-live -bird-live", "0:0", "felix is not live: http://localhost:9099/liveness: "],
    ["/usr/bin/calico-node -felix-ready -bird-ready", "0:0", "is not ready"],
    ["/usr/bin/check-status -r", "999:999", "cannot read /status/status.json"],
    ["/usr/bin/check-status -l", "999:999", "cannot read /status/status.json"],
  ] as const) {
    const { code, out } = run(command.split(" "), { user });
    expect({ command, code, says: out.includes(why) ? why : out }).toEqual({ command, code: 1, says: why });
  }
});

test.skipIf(!canRun)("nothing in the image is setuid", () => {
  expect(execFileSync("find", [root, "-xdev", "-type", "f", "-perm", "/6000"], { encoding: "utf8" })).toBe("");
});

/** The part of CycloneDX 1.5 that is used here: https://cyclonedx.org/docs/1.5/json/ */
const Hash = z.union([
  z.strictObject({ alg: z.literal("SHA-256"), content: z.string().regex(/^[0-9a-f]{64}$/) }),
  z.strictObject({ alg: z.literal("SHA-512"), content: z.string().regex(/^[0-9a-f]{128}$/) }),
]);
const Component = z.strictObject({
  type: z.enum(["application", "container", "library", "operating-system", "platform"]),
  name: z.string().min(1),
  version: z.string().regex(/\d|bookworm/),
  purl: z
    .string()
    .regex(/^pkg:(deb\/debian|npm)\/\S+@\S+$/)
    .optional(),
  hashes: z.array(Hash).min(1).optional(),
  licenses: z.array(z.strictObject({ license: z.strictObject({ id: z.string() }) })).optional(),
});
const Bom = z.strictObject({
  bomFormat: z.literal("CycloneDX"),
  specVersion: z.literal("1.5"),
  version: z.literal(1),
  metadata: z.strictObject({
    component: Component,
    properties: z.array(z.strictObject({ name: z.string(), value: z.string().min(1) })).optional(),
  }),
  components: z.array(Component).min(1),
});
const billOf = (part: string) =>
  Bom.parse(JSON.parse(readFileSync(join(root, "usr/share/sbom", `${part}.cdx.json`), "utf8")));

test.skipIf(!canRun)(
  "the bill of materials lists every Debian package with version and hash, and the base image",
  () => {
    const { metadata, components } = billOf("debian");
    const installed = run(["dpkg-query", "-W", "-f=${Package} ${Version}\\n"]).out.split("\n");
    expect(installed.length).toBeGreaterThan(50);
    expect(components.map(({ name, version }) => `${name} ${version}`).sort()).toEqual(installed.sort());
    for (const name of ["bird2", "nftables", "iptables", "ipset", "libc6"])
      expect(components.map((component) => component.name)).toContain(name);
    // A base image may have packages that the mirror no longer offers.
    if (given === undefined) expect(components.filter(({ hashes }) => hashes === undefined)).toEqual([]);
    expect(metadata.component).toMatchObject({
      type: "operating-system",
      name: "debian",
      version: expect.stringMatching(/^12\./),
    });
    const properties = Object.fromEntries((metadata.properties ?? []).map(({ name, value }) => [name, value]));
    expect(properties["calico-ts:base-image"]).toMatch(given === undefined ? /^none$/ : /^localhost\/|@sha256:/);
    expect(properties["calico-ts:debian-release-sha256"]).toMatch(/^[0-9a-f]{64}$/);
  },
);

test.skipIf(!canRun)("a base image without a digest is rejected before anything is changed", () => {
  const script = readFileSync(join(import.meta.dir, "../../../image/finish.sh"), "utf8");
  const finish = (base: string) => run(["env", `BASE=${base}`, "sh", "-c", script]);
  expect(finish("debian:bookworm-slim")).toEqual({
    code: 1,
    out: "finish.sh: BASE=debian:bookworm-slim has no digest: use NAME@sha256:…",
  });
  // These are accepted; the next step fails because the root is read-only here.
  for (const base of ["localhost/debian:bookworm-slim", `debian@sha256:${"0".repeat(64)}`]) {
    const { code, out } = finish(base);
    expect({ base, isRefused: out.includes("no digest"), failed: code !== 0 }).toEqual({
      base,
      isRefused: false,
      failed: true,
    });
  }
});

test.skipIf(!canRun)(
  "the bill of materials lists the components of the executable, with the hashes of the lock file",
  async () => {
    const { metadata, components } = billOf("calico");
    const find = (name: string) => components.find((component) => component.name === name);
    const program = createHash("sha256")
      .update(readFileSync(join(root, "usr/bin/calico")))
      .digest("hex");
    expect(metadata.component).toMatchObject({ name: "calico-ts", hashes: [{ alg: "SHA-256", content: program }] });
    expect(`v${metadata.component.version}`).toBe(VERSION);
    const lock = readFileSync(join(import.meta.dir, "../../../bun.lock"), "utf8");
    for (const name of ["zod", "js-yaml"]) {
      const [{ content = "" } = {}] = find(name)?.hashes ?? [];
      expect(lock).toContain(`"sha512-${Buffer.from(content, "hex").toString("base64")}"`);
    }
    const runtime = components.find(({ type }) => type === "platform");
    expect(runtime).toMatchObject({ name: expect.stringMatching(/^@oven\/bun-linux-/), version: Bun.version });
    expect(find("typescript")).toBeUndefined(); // build tools are not included
    if (given === undefined) expect(find("debian-root")?.hashes?.[0]?.content).toBe(lowestLayer);
  },
);
