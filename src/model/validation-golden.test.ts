// Compares validation with recordings of Calico, if they exist next to the checkout. A release and the master branch
// were recorded; a case passes if the result equals either.
import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { load } from "js-yaml";
import { findKind, type Resource } from "./index.ts";
import { hasSchema, loadSchema } from "./validation/schemas.ts";

interface Recording {
  readonly accepted: boolean;
  readonly error?: string;
  readonly stored?: unknown;
}
interface Case extends Recording {
  readonly name: string;
  readonly yaml: string;
  readonly setup?: string;
  readonly master?: Partial<Recording>;
}

const folder = join(import.meta.dir, "../../../shared/golden/validation");

/** Cases that are not checked here, because another part of calico-ts checks them or because it differs on purpose. */
const EXCLUDED: Readonly<Record<string, string>> = {
  "IPPool/overlap inside": "needs the other pools: the client checks",
  "BGPPeer/filter missing": "needs the other resources: the client checks",
  "GlobalNetworkPolicy/tier unknown": "needs the other resources: the client checks",
  "Profile/default allow name": "the client checks for the built-in profile",
  "NetworkPolicy/name knp prefix": "calicoctl rejects writes of Kubernetes' own policies",
  "WorkloadEndpoint/name mismatch": "the client computes the name",
  "WorkloadEndpoint/missing pod": "the client computes the name",
  "BGPConfiguration/as max": "AS numbers above 2147483647 exist",
  "FelixConfiguration/duration ms": "calico-ts accepts fractions of a second",
  "GlobalNetworkPolicy/rule services ingress source with ports": "an unquoted n is the letter n",
  "GlobalNetworkPolicy/rule services namespace unquoted n": "an unquoted n is the letter n",
  "CalicoNodeStatus/ok": "an unquoted n is the letter n",
};

function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .map(([key, inner]) => [key, canonical(inner)] as const)
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}
const same = (a: unknown, b: unknown) => JSON.stringify(canonical(a)) === JSON.stringify(canonical(b));

async function outcome(yaml: string): Promise<Recording> {
  const raw = load(yaml) as Resource;
  if (!hasSchema(raw.kind)) return { accepted: false, error: "unknown kind" };
  const namespaced = findKind(raw.kind)?.namespaced === true;
  const metadata = namespaced ? { namespace: "default", ...raw.metadata } : raw.metadata;
  const result = (await loadSchema(raw.kind)).validate({ ...raw, metadata }, "create");
  if (!result.ok) return { accepted: false, error: JSON.stringify(result.faults) };
  return { accepted: true, stored: result.resource.spec };
}

function fits(got: Recording, want: Recording): boolean {
  if (got.accepted !== want.accepted) return false;
  return !got.accepted || want.stored === undefined || same(got.stored, want.stored);
}

if (!existsSync(folder)) test.skip("no recordings next to this checkout", () => {});
else
  for (const file of readdirSync(folder).filter((name) => name.endsWith(".json")))
    describe(`recorded validation of ${file.replace(".json", "")}`, () => {
      const { group, cases } = JSON.parse(readFileSync(join(folder, file), "utf8")) as { group: string; cases: Case[] };
      for (const recorded of cases) {
        if (EXCLUDED[`${group}/${recorded.name}`] !== undefined) continue;
        test(`DM-143 ${recorded.name}`, async () => {
          const got = await outcome(recorded.yaml);
          const unknown = /Unknown resource type/.test(recorded.error ?? "") && recorded.master !== undefined;
          const truths = [
            ...(unknown ? [] : [recorded]),
            ...(recorded.master ? [{ ...recorded, ...recorded.master }] : []),
          ];
          const equal = truths.some((truth) => fits(got, truth));
          expect(equal ? "equal" : { got, truths }).toEqual("equal");
        });
      }
    });
