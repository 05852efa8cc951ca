#!/bin/bash
# What a pod of the image runs. Spark starts its executors as `executor`, with what they need in variables
# (https://spark.apache.org/docs/latest/running-on-kubernetes.html); everything else is a command of postgres-cdc.
set -eu
if [ "${1:-}" != executor ]; then
    exec postgres-cdc "$@"
fi
options=()
for name in $(compgen -v SPARK_JAVA_OPT_ | sort -t_ -k4 -n); do
    options+=("${!name}")
done
home=$(python3 -c "import os, pyspark; print(os.path.dirname(pyspark.__file__))")
exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}$home/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
