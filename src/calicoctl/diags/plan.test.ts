import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { copyArchive } from "./archive.ts";
import { calicoPods } from "./plan.ts";

test("names that are not valid in Kubernetes are not used as file names or arguments of kubectl", () => {
  const pod = (name: string, nodeName: string, container = "calico-node") => ({
    metadata: { name, namespace: "kube-system", labels: { "k8s-app": "calico-node" } },
    spec: { nodeName, containers: [{ name: container }] },
  });
  const items = [
    pod("calico-node-1", "n1"),
    pod("--kubeconfig=/tmp/x", "n1"),
    pod("p", "../../../etc"),
    pod("p", "n1", "../../x"),
    pod("calico-node-2", ""),
  ];
  expect(calicoPods({ items }).map(({ name }) => name)).toEqual(["calico-node-1", "calico-node-2"]);
});

test("an archive does not overwrite an existing file or symbolic link, and only its owner can read it", () => {
  const folder = mkdtempSync(join(tmpdir(), "diags-"));
  try {
    const [made, victim] = [join(folder, "made"), join(folder, "victim")];
    writeFileSync(made, "diagnostics");
    writeFileSync(victim, "unchanged");
    symlinkSync(victim, join(folder, "diags.tar.gz"));
    symlinkSync(join(folder, "nowhere"), join(folder, "diags-2.tar.gz"));
    const archive = copyArchive(made, join(folder, "diags"));
    expect(archive).toBe(join(folder, "diags-3.tar.gz"));
    expect([readFileSync(victim, "utf8"), readFileSync(archive, "utf8")]).toEqual(["unchanged", "diagnostics"]);
    expect(statSync(archive).mode & 0o777).toBe(0o600);
    expect(() => copyArchive(made, join(folder, "none", "diags"))).toThrow(/cannot write .*ENOENT/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
