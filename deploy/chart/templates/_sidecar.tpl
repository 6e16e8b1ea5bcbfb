{{- /*
What a serving pod needs, in pieces for your own templates. Each takes this chart's context:
`$` within this chart, `.Subcharts.specscope` from a chart that depends on it.

  specscope.sidecar.labels      labels of the pod; the network policy and the monitor go by them
  specscope.sidecar.container   one entry of initContainers: starts before the engine, stops after it
  specscope.sidecar.hook        one entry of initContainers: copies the hook into a volume, for images without it
  specscope.sidecar.env         env of the serving container
  specscope.sidecar.mounts      volumeMounts of the serving container
  specscope.sidecar.hookPath    the PYTHONPATH that finds the copied hook, where hook is used
  specscope.sidecar.hookMount   the volumeMount of the copied hook, where hook is used
  specscope.sidecar.volumes     volumes of the pod
  specscope.sidecar.hookVolume  the volume of the copied hook, where hook is used
*/ -}}
{{- define "specscope.sidecar.labels" -}}
specscope.io/sidecar: "true"
{{- end -}}

{{- define "specscope.sidecar.container" -}}
- name: specscope-agent
  image: {{ include "specscope.image" (list . "agent") }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [agent]
  # Native sidecar: runs before the engine starts and until it has ended, so the last rounds are shipped.
  # No startup probe, since that would hold the engine back.
  restartPolicy: Always
  env:
    - name: SPECSCOPE_RINGS
      value: {{ .Values.hook.ringsPath | quote }}
    - name: SPECSCOPE_SERVICE
      value: {{ default (printf "%s.%s:%v" (include "specscope.fullname" .) .Release.Namespace .Values.service.grpcPort) .Values.sidecar.service | quote }}
    {{- if not .Values.security.insecure }}
    - name: SPECSCOPE_TLS_CA
      value: /etc/specscope-service/ca.crt
    - name: SPECSCOPE_TOKEN_FILE
      value: /etc/specscope-service/token
    {{- if .Values.security.mutual }}
    - name: SPECSCOPE_TLS_CERT
      value: /etc/specscope-service/tls.crt
    - name: SPECSCOPE_TLS_KEY
      value: /etc/specscope-service/tls.key
    {{- end }}
    {{- end }}
    {{- with .Values.sidecar.sources }}
    - name: SPECSCOPE_SOURCES
      value: {{ join "," . | quote }}
    {{- end }}
    - name: SPECSCOPE_SPOOL
      value: /var/spool/specscope
    - name: SPECSCOPE_SPOOL_BYTES
      value: {{ mul .Values.sidecar.spool.mebibytes 1048576 | quote }}
    - name: SPECSCOPE_METRICS_PORT
      value: {{ .Values.sidecar.metricsPort | quote }}
    - name: SPECSCOPE_METRICS_HOST
      value: "0.0.0.0"
    {{- with .Values.sidecar.otlp.endpoint }}
    - name: SPECSCOPE_OTLP
      value: {{ . | quote }}
    - name: SPECSCOPE_SAMPLE
      value: {{ $.Values.sidecar.otlp.sample | quote }}
    {{- end }}
    {{- if .Values.sidecar.nvidia.visible }}
    - name: NVIDIA_VISIBLE_DEVICES
      value: all
    - name: NVIDIA_DRIVER_CAPABILITIES
      value: utility
    {{- end }}
  ports:
    - name: specscope
      containerPort: {{ .Values.sidecar.metricsPort }}
  livenessProbe:
    httpGet:
      path: /live
      port: specscope
    periodSeconds: 30
    failureThreshold: 10
  resources:
    {{- toYaml .Values.sidecar.resources | nindent 4 }}
  securityContext:
    {{- include "specscope.containerSecurity" . | nindent 4 }}
    {{- if not (kindIs "invalid" .Values.sidecar.runAsUser) }}
    runAsUser: {{ .Values.sidecar.runAsUser }}
    {{- end }}
  volumeMounts:
    - name: specscope-rings
      mountPath: {{ .Values.hook.ringsPath }}
    - name: specscope-spool
      mountPath: /var/spool/specscope
    {{- if not .Values.security.insecure }}
    - name: specscope-service
      mountPath: /etc/specscope-service
      readOnly: true
    {{- end }}
{{- end -}}

{{- define "specscope.sidecar.hook" -}}
- name: specscope-hook
  image: {{ include "specscope.image" (list . "agent") }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [cp, -R, /opt/specscope-hook/., /hook]
  securityContext:
    {{- include "specscope.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - name: specscope-hook
      mountPath: /hook
{{- end -}}

{{- define "specscope.sidecar.hookPath" -}}
- name: PYTHONPATH
  value: /opt/specscope-hook
{{- end -}}

{{- define "specscope.sidecar.hookMount" -}}
- name: specscope-hook
  mountPath: /opt/specscope-hook
  readOnly: true
{{- end -}}

{{- define "specscope.sidecar.env" -}}
- name: SPECSCOPE_RINGS
  value: {{ .Values.hook.ringsPath | quote }}
- name: SPECSCOPE_RING_BYTES
  value: {{ mul .Values.hook.ring.mebibytes 1048576 | quote }}
- name: SPECSCOPE_REPLICA
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- with .Values.hook.saltSecret }}
- name: SPECSCOPE_SALT
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: salt
{{- end }}
{{- if .Values.hook.classRules }}
- name: SPECSCOPE_CLASSES
  value: /etc/specscope/classes.rules
{{- end }}
{{- if .Values.hook.requestK }}
- name: SPECSCOPE_REQUEST_K
  value: "on"
{{- end }}
{{- if not (kindIs "invalid" .Values.hook.pricePerHour) }}
- name: SPECSCOPE_PRICE_PER_HOUR
  value: {{ .Values.hook.pricePerHour | quote }}
{{- end }}
{{- end -}}

{{- define "specscope.sidecar.mounts" -}}
- name: specscope-rings
  mountPath: {{ .Values.hook.ringsPath }}
{{- if .Values.hook.classRules }}
- name: specscope-classes
  mountPath: /etc/specscope
  readOnly: true
{{- end }}
{{- end -}}

{{- define "specscope.sidecar.volumes" -}}
- name: specscope-rings
  emptyDir:
    medium: Memory
    # Twice, since a restarted engine makes a new ring while the sidecar still drains the old one.
    sizeLimit: {{ mul .Values.hook.ring.mebibytes .Values.hook.ring.processes 2 | add 8 }}Mi
- name: specscope-spool
  emptyDir:
    # The spool's own limit comes first; the node evicts a pod that passes this one.
    sizeLimit: {{ add .Values.sidecar.spool.mebibytes 128 }}Mi
{{- if not .Values.security.insecure }}
# Read again for each stream, so a renewed token needs no restart.
- name: specscope-service
  secret:
    secretName: {{ .Values.sidecar.secret }}
{{- end }}
{{- if .Values.hook.classRules }}
- name: specscope-classes
  configMap:
    name: {{ include "specscope.fullname" . }}-classes
{{- end }}
{{- end -}}

{{- define "specscope.sidecar.hookVolume" -}}
- name: specscope-hook
  emptyDir:
    sizeLimit: 64Mi
{{- end -}}
