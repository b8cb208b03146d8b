{{- define "sdfstream-agent.labels" -}}
app.kubernetes.io/name: sdfstream-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "sdfstream-agent.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag }}{{ end }}
{{- end }}
