// Parses resources that are named on the command line by kind and name. Their `spec` is empty.
import { API_VERSION, type Resource } from "../../model/index.ts";
import { UsageError } from "../../lib/command-line/usage-error.ts";
import { Failure } from "./failure.ts";
import { findManagedKind, MANAGED_KINDS, type ManagedKind, nearestKindName } from "../resources/kinds.ts";

export interface NamedResource {
  readonly kind: ManagedKind;
  readonly resource: Resource;
}

export class UnknownKind extends Failure {}

export function kindFromWord(word: string): ManagedKind {
  const kind = findManagedKind(word);
  if (kind === undefined) {
    const near = nearestKindName(word);
    const advice = near === undefined ? `supported types are ${MANAGED_KINDS.join(", ")}` : `did you mean ${near}?`;
    throw new UnknownKind(`resource type '${word}' is not supported; ${advice}`);
  }
  return kind;
}

export function namedResource(kind: ManagedKind, name: string, namespace?: string): Resource {
  const metadata = namespace === undefined ? { name } : { name, namespace };
  return { apiVersion: API_VERSION, kind, metadata, spec: {} };
}

/** @param options `atLeastOne`: a kind without names returns one resource with an empty name instead of none */
export function resourcesFromWords(
  { KIND, NAME }: { readonly KIND: string | undefined; readonly NAME: readonly string[] },
  options: { readonly atLeastOne: boolean },
): NamedResource[] {
  if (KIND === undefined) throw new UsageError("KIND or --filename is missing");
  const kind = kindFromWord(KIND);
  const names = [...NAME];
  if (names.includes("")) throw new Failure("resource name must not be empty");
  if (names.length === 0 && options.atLeastOne) names.push("");
  return names.map((name) => ({ kind, resource: namedResource(kind, name) }));
}
