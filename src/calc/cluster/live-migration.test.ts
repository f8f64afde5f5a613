import { expect, test } from "bun:test";
import fc from "fast-check";
import {
  ParsedSelector,
  readLiveMigration,
  rejectUnreadable,
  type Resource,
  type WorkloadEndpointKey,
} from "../../model/index.ts";
import { endpointKeyText } from "../ids.ts";
import type { SelectionListener } from "../policy/active-rules.ts";
import { LiveMigrations, type MigrationRole } from "./live-migration.ts";

const workloadKey = (pod: string): WorkloadEndpointKey => ({
  type: "workloadEndpoint",
  host: "n1",
  orchestrator: "k8s",
  workload: `ns1/${pod}`,
  endpoint: "eth0",
});
const workload = (pod: string) => ({ orchestratorID: "k8s", workloadID: `ns1/${pod}` });
const byEndpoint = (pod: string) => ({ workloadEndpoint: { ...workload(pod), endpointID: "eth0" } });

/** The content of one migration. All fields except the UID are numbers of pods or selectors. */
interface MigrationFields {
  readonly uid: string;
  readonly source?: number | undefined;
  readonly target?: number | undefined;
  readonly selector?: number | undefined;
}

/** `LiveMigrations` with selections that the test controls. */
class Harness {
  readonly roles = new Map<string, MigrationRole>();
  readonly #listeners = new Map<ParsedSelector, SelectionListener>();
  readonly #pods = new Set<string>();
  readonly #matches = new Set<string>();
  readonly #fields = new Map<string, MigrationFields>();
  readonly migrations = new LiveMigrations(
    {
      addSelection: (selector, listener) => {
        this.#listeners.set(selector, listener);
        for (const pod of this.#pods) if (this.#isMatch(selector, pod)) listener.onSelected(selector, workloadKey(pod));
      },
      removeSelection: (selector, listener) => {
        this.#listeners.delete(selector);
        for (const pod of this.#pods)
          if (this.#isMatch(selector, pod)) listener.onDeselected(selector, workloadKey(pod));
      },
    },
    (key, role) => {
      const id = endpointKeyText(key);
      expect(role).not.toEqual(this.roles.get(id)); // only changes are reported
      if (role === undefined) this.roles.delete(id);
      else this.roles.set(id, role);
    },
  );

  setPod(number: number, exists: boolean): void {
    const pod = `p${number}`;
    if (exists === this.#pods.has(pod)) return;
    this.migrations.setWorkload(workloadKey(pod), exists);
    if (exists) this.#pods.add(pod);
    else this.#pods.delete(pod);
    for (const [selector, listener] of this.#listeners)
      if (this.#isMatch(selector, pod)) listener[exists ? "onSelected" : "onDeselected"](selector, workloadKey(pod));
  }

  setMatch(selectorNumber: number, podNumber: number, isMatch: boolean): void {
    const [selector, pod] = [selectorOf(selectorNumber), `p${podNumber}`];
    if (isMatch === this.#isMatch(selector, pod)) return;
    if (isMatch) this.#matches.add(`${selector.text} ${pod}`);
    else this.#matches.delete(`${selector.text} ${pod}`);
    if (this.#pods.has(pod))
      this.#listeners.get(selector)?.[isMatch ? "onSelected" : "onDeselected"](selector, workloadKey(pod));
  }

  setMigration(name: string, fields: MigrationFields | undefined): void {
    if (fields === undefined) this.#fields.delete(name);
    else this.#fields.set(name, fields);
    const { source, target, selector, uid } = fields ?? { uid: "" };
    const resource = {
      metadata: { name, namespace: "ns1", uid },
      spec: {
        ...(source === undefined ? {} : { source: { workload: workload(`p${source}`) } }),
        target: {
          ...(target === undefined ? {} : byEndpoint(`p${target}`)),
          ...(selector === undefined ? {} : { selector: selectorOf(selector).text }),
        },
      },
    } as unknown as Resource;
    this.migrations.setMigration(
      { type: "resource", kind: "LiveMigration", namespace: "ns1", name },
      fields === undefined ? undefined : readLiveMigration(resource, rejectUnreadable),
    );
  }

  /** Computes the roles from their definition, by comparing all migrations with all pods. */
  expectedRoles(): Map<string, MigrationRole> {
    const roles = new Map<string, MigrationRole>();
    const fields = [...this.#fields.values()];
    for (const pod of this.#pods) {
      const selected = fields.filter(({ selector: s }) => s !== undefined && this.#isMatch(selectorOf(s), pod));
      const targets = fields.filter(({ target }) => `p${target}` === pod);
      const sources = fields.filter(({ source }) => `p${source}` === pod);
      const [first, role] =
        selected.length > 0
          ? ([selected, "target"] as const)
          : targets.length > 0
            ? ([targets, "target"] as const)
            : ([sources, "source"] as const);
      const uid = first
        .map((each) => each.uid)
        .sort()
        .at(-1);
      if (uid !== undefined) roles.set(endpointKeyText(workloadKey(pod)), { role, uid });
    }
    return roles;
  }

  #isMatch(selector: ParsedSelector, pod: string): boolean {
    return this.#matches.has(`${selector.text} ${pod}`);
  }
}

const selectorOf = (number: number): ParsedSelector => ParsedSelector.parse(`vm == '${number}'`);

const small = fc.integer({ min: 0, max: 2 });
const maybe = fc.option(small, { nil: undefined });
const uid = fc.constantFrom("", "a", "b", "c");
const fields: fc.Arbitrary<MigrationFields> = fc.record({ uid, source: maybe, target: maybe, selector: maybe });
const change: fc.Arbitrary<(harness: Harness) => void> = fc.oneof(
  fc.tuple(small, fc.boolean()).map(
    ([pod, exists]) =>
      (harness: Harness) =>
        harness.setPod(pod, exists),
  ),
  fc.tuple(small, small, fc.boolean()).map(
    ([selector, pod, isMatch]) =>
      (harness: Harness) =>
        harness.setMatch(selector, pod, isMatch),
  ),
  fc.tuple(small, fc.option(fields, { nil: undefined })).map(
    ([name, value]) =>
      (harness: Harness) =>
        harness.setMigration(`m${name}`, value),
  ),
);

test("after every change, each workload has the role that follows from all migrations", () => {
  fc.assert(
    fc.property(fc.array(change, { maxLength: 40 }), (changes) => {
      const harness = new Harness();
      for (const apply of changes) {
        apply(harness);
        expect(harness.roles).toEqual(harness.expectedRoles());
      }
    }),
    { numRuns: 500 },
  );
});

test("the cost of a change depends on the affected workloads, not on all workloads and migrations", () => {
  const harness = new Harness();
  const [pods, migrations] = [100, 2000];
  for (let pod = 0; pod < pods; pod++) harness.setPod(pod, true);
  for (let i = 0; i < migrations; i++) harness.setMigration(`m${i}`, { uid: `u${i}`, source: i % pods, selector: i });
  for (let i = 0; i < migrations; i++) harness.setMatch(i, (i + 1) % pods, true);
  for (let i = 0; i < migrations; i++) harness.setMigration(`m${i}`, undefined);
  expect(harness.roles.size).toBe(0);
  // Per migration: its source when it is added, its target when it is selected, and both when it is removed.
  expect(harness.migrations.roleComputations).toBeLessThanOrEqual(pods + 4 * migrations);
});
