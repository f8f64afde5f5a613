// What tests of the doctor ask: what is found in a cluster of a few resources.
import { expect } from "bun:test";
import type { Resource } from "../../model/index.ts";
import { examine } from "../doctor/examine.ts";
import { clusterFacts, type HostFacts, type StoredBlock } from "../doctor/facts.ts";
import type { Finding } from "../doctor/finding.ts";
import { resource } from "./healthy.ts";

export const meshOff = resource("BGPConfiguration", "default", { nodeToNodeMeshEnabled: false });
/** The findings; every check must be able to run. */
export function look(resources: readonly Resource[], host?: HostFacts, blocks: readonly StoredBlock[] = []) {
  const { findings, notChecked } = examine(clusterFacts(resources, blocks), host);
  expect(notChecked).toEqual([]);
  return findings;
}
export const ids = (findings: readonly Finding[]) => findings.map(({ id }) => id);
/** The one finding of that id; every finding must be complete. */
export function only(findings: readonly Finding[], id: string): Finding {
  for (const each of findings) {
    expect([each.problem, each.cause, each.fix].every((text) => text.length > 10)).toBe(true);
    expect(each.evidence.length).toBeGreaterThan(0);
  }
  const found = findings.filter((each) => each.id === id);
  expect(ids(found)).toEqual([id]);
  const [finding] = found;
  if (finding === undefined) throw new Error(`nothing found of ${id}`);
  return finding;
}
