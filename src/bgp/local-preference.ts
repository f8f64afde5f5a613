/**
 * Between nodes, the metric of a route is sent as BGP local preference: this value minus the metric, so that the route with
 * the lower metric is preferred.
 */
export const MAX_LOCAL_PREFERENCE = 2147483647;
