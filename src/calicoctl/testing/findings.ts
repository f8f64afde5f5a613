// Runs doctor's checks on a few resources in tests.
import { expect } from "bun:test";
import type { Resource } from "../../model/index.ts";
import { examine } from "../doctor/examine.ts";
import { clusterFacts, type HostFacts, type StoredBlock } from "../doctor/facts.ts";
import type { Finding } from "../doctor/finding.ts";
import { resource } from "./healthy.ts";

export const meshOff = resource("BGPConfiguration", "default", { nodeToNodeMeshEnabled: false });
/** Returns the findings. Fails if a check could not run. */
export function look(resources: readonly Resource[], host?: HostFacts, blocks: readonly StoredBlock[] = []) {
  const { findings, notChecked } = examine(clusterFacts(resources, blocks), host);
  expect(notChecked).toEqual([]);
  return findings;
}
export const ids = (findings: readonly Finding[]) => findings.map(({ id }) => id);
/** Returns the only finding with that ID. Fails if there are several, or if a finding is incomplete. */
export function only(findings: readonly Finding[], id: string): Finding {
  for (const each of findings) {
    expect([each.problem, each.cause, each.fix].every((text) => text.length > 10)).toBe(true);
    expect(each.evidence.length).toBeGreaterThan(0);
  }
  const found = findings.filter((each) => each.id === id);
  expect(ids(found)).toEqual([id]);
  const [finding] = found;
  if (finding === undefined) throw new Error(`no finding ${id}`);
  return finding;
}
