import { expect, test } from "bun:test";
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeOciArchive } from "../image/oci-archive.ts";
import { IMAGE } from "../manifests/image.ts";
import { pinImage, sumsOf } from "./contents.ts";

const DIGEST = `sha256:${"a".repeat(64)}`;

async function withFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "release-test-"));
  try {
    await use(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("sha256sum verifies the sums, and reports a changed file", () =>
  withFolder(async (folder) => {
    mkdirSync(join(folder, "manifests"));
    writeFileSync(join(folder, "manifests/calico.yaml"), "kind: List\n");
    writeFileSync(join(folder, "program"), "text");
    writeFileSync(join(folder, "SHA256SUMS"), await sumsOf(folder));
    const verify = () => spawnSync("sha256sum", ["--quiet", "-c", "SHA256SUMS"], { cwd: folder, encoding: "utf8" });
    expect(verify()).toMatchObject({ status: 0, stdout: "" });
    expect(readFileSync(join(folder, "SHA256SUMS"), "utf8").trim().split("\n")).toHaveLength(2);
    writeFileSync(join(folder, "program"), "texts");
    expect(verify().status).toBe(1);
  }));

test("every container of every manifest gets the digest", () => {
  const manifests = join(import.meta.dir, "../../manifests");
  for (const file of ["calico.yaml", "calico-vxlan.yaml", "calico-typha.yaml", "calico-etcd.yaml", "uninstall.yaml"]) {
    const text = readFileSync(join(manifests, file), "utf8");
    const pinned = pinImage(text, DIGEST);
    expect(text).toContain(`image: ${IMAGE}`);
    expect(pinned).not.toContain(IMAGE);
    expect([...pinned.matchAll(/^\s*(?:- )?image: (.*)$/gm)].map(([, image]) => image)).toSatisfy((images) =>
      images.every((image) => image === `localhost/calico-ts/calico@${DIGEST}`),
    );
  }
});

test("an image archive is an OCI layout and a Docker archive, and its digest is that of its manifest", () =>
  withFolder(async (folder) => {
    writeFileSync(join(folder, "file"), "content");
    execFileSync("tar", ["-C", folder, "-cf", join(folder, "layer.tar"), "file"]);
    const parts = { name: IMAGE, layers: [join(folder, "layer.tar")], entrypoint: ["/file"], created: new Date(0) };
    const digest = await writeOciArchive(join(folder, "image.tar"), parts);
    execFileSync("tar", ["-C", folder, "-xf", join(folder, "image.tar")]);
    const read = (path: string) => JSON.parse(readFileSync(join(folder, path), "utf8"));
    const blob = (name: string) => readFileSync(join(folder, "blobs/sha256", name.replace("sha256:", "")));
    const hashOf = (bytes: Uint8Array) => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
    expect(read("index.json").manifests[0].digest).toBe(digest);
    expect(hashOf(blob(digest))).toBe(digest);
    const manifest = JSON.parse(blob(digest).toString());
    for (const { digest: named, size } of [manifest.config, ...manifest.layers]) {
      expect(hashOf(blob(named))).toBe(named);
      expect(blob(named).length).toBe(size);
    }
    expect(JSON.parse(blob(manifest.config.digest).toString()).rootfs.diff_ids).toEqual([manifest.layers[0].digest]);
    expect(read("manifest.json")[0].RepoTags).toEqual([IMAGE]);
    const again = await writeOciArchive(join(folder, "again.tar"), parts);
    expect(again).toBe(digest);
    expect(readFileSync(join(folder, "again.tar")).equals(readFileSync(join(folder, "image.tar")))).toBe(true);
  }));
