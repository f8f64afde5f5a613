// Defines the schema of metadata, which all resources share, and validates names, labels and annotations on writes.
import type { FieldFault, Report } from "../validation/faults.ts";
import { fieldPath } from "../validation/faults.ts";
import { isLabelValue, isQualifiedName, isSubdomain, isTimestamp } from "../validation/formats.ts";
import type { KindName } from "../kinds.ts";
import { kindOf } from "../kinds.ts";
import type { Metadata } from "../resource.ts";
import { field, flag, int64, list, map, object, pointer, text, unchecked } from "./fields.ts";
import { checkAnnotations } from "./policy-rule.ts";

export const metadataSchema = object({
  name: text(),
  generateName: field(text()),
  namespace: field(text()),
  selfLink: field(text()),
  uid: field(text()),
  resourceVersion: field(text()),
  generation: field(int64()),
  creationTimestamp: field(text()),
  deletionTimestamp: field(text()),
  deletionGracePeriodSeconds: pointer(int64()),
  labels: field(map()),
  annotations: field(map()),
  ownerReferences: field(
    list(
      object({
        apiVersion: text(),
        kind: text(),
        name: text(),
        uid: text(),
        controller: pointer(flag()),
        blockOwnerDeletion: pointer(flag()),
      }),
    ),
  ),
  finalizers: field(list(text())),
  managedFields: field(list(unchecked())),
});

const WANTED_NAME = "want a lower-case DNS name, such as my-name or a.b: a-z, 0-9, - and .";

export function checkMetadata(
  metadata: Metadata,
  kind: KindName,
  nameRule: ((name: string) => string | undefined) | undefined,
  faults: FieldFault[],
): void {
  const report: Report = (path, value, reason) => {
    const field = typeof path === "string" ? path : fieldPath(path);
    faults.push(value === undefined ? { field, reason } : { field, value, reason });
  };
  const name = metadata.name ?? "";
  const wrong =
    name.length > 253
      ? `has ${name.length - 253} characters too many`
      : isSubdomain(name)
        ? nameRule?.(name)
        : WANTED_NAME;
  if (wrong !== undefined) report(["metadata", "name"], name, wrong);
  if (metadata.namespace !== undefined && !kindOf(kind).namespaced)
    report(["metadata", "namespace"], metadata.namespace, `${kind} is not a namespaced kind`);
  for (const time of ["creationTimestamp", "deletionTimestamp"] as const)
    if (metadata[time] !== undefined && !isTimestamp(metadata[time]))
      report(["metadata", time], metadata[time], "want a time such as 2026-01-31T12:00:00Z");
  for (const [key, value] of Object.entries(metadata.labels ?? {})) {
    if (!isQualifiedName(key))
      report(["metadata", "labels", key], undefined, "want a label key such as app or example.org/app");
    if (!isLabelValue(value))
      report(
        ["metadata", "labels", key],
        value,
        "want a label value: at most 63 of letters, digits, -, _ and ., with a letter or digit at both ends",
      );
  }
  if (metadata.annotations !== undefined) checkAnnotations(metadata.annotations, ["metadata", "annotations"], report);
}
