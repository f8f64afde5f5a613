// Writes that must not fail because of something else in the object. What our checks accept is written with its defaults
// filled in; what they refuse (names and labels of Kubernetes may be longer than ours, a user may have left a fault in
// another field) is written as it is.
import { type Client, ValidationFailed } from "../datastore/index.ts";
import type { Resource } from "../model/index.ts";

export const createLeniently = (client: Client, resource: Resource, signal: AbortSignal): Promise<unknown> =>
  leniently((trusted) => client.create(resource, { signal, trusted }));

export const updateLeniently = (client: Client, resource: Resource, signal: AbortSignal): Promise<unknown> =>
  leniently((trusted) => client.update(resource, { signal, trusted }));

async function leniently<T>(write: (trusted: boolean) => Promise<T>): Promise<T> {
  try {
    return await write(false);
  } catch (error) {
    if (!(error instanceof ValidationFailed)) throw error;
    return write(true);
  }
}
